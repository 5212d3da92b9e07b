"""What tests in Python check by: every check is made, also after one that failed, and the test's exit status says
whether all held.

    require(holds, *what), text = printed(*command) ..., and at the end sys.exit(failed())

LESS: the last argument is `less` (SKYCC_LESS in cmake/SkyccTest.cmake): a part is left out. tests/README.md names it.
"""
import subprocess
import sys

LESS = sys.argv[-1] == "less"
_failures = []


def require(holds, *what):
    if not holds:
        _failures.append(what)
        print("FAILED:", *what, flush=True)


def failed():
    return bool(_failures)


def check_all(checks, not_less):
    """Calls all checks in turn; under LESS without those in `not_less`."""
    for check in checks:
        if not (LESS and check in not_less):
            check()


def run(*command, code=0, **options):
    """The finished process: its exit status, stdout and stderr."""
    result = subprocess.run(command, capture_output=True, text=True, **options)
    require(result.returncode == code, *command, f"gives {result.returncode}, not {code}:",
            result.stdout + result.stderr)
    return result


def printed(*command, **options):
    """All that it prints."""
    result = run(*command, **options)
    return result.stdout + result.stderr
