"""An sshd of the test's own, on a port of this machine alone, with keys of its own."""
import os
import shutil
import socket
import subprocess
import time

SERVER = """
ListenAddress 127.0.0.1
Port %(port)d
HostKey %(folder)s/key
AuthorizedKeysFile %(folder)s/key.pub
PasswordAuthentication no
PermitRootLogin yes
StrictModes no
PidFile none
UsePAM no
MaxStartups 100
# Shells read no start-up files of this user.
SetEnv HOME=%(folder)s
"""
CLIENT = """
Host %(names)s
HostName 127.0.0.1
HostKeyAlias server
Port %(port)d
Host *
IdentityFile %(folder)s/key
IdentitiesOnly yes
KexAlgorithms curve25519-sha256
UserKnownHostsFile %(folder)s/known
GlobalKnownHostsFile none
LogLevel ERROR
"""


class Unavailable(Exception):
    """Why there can be none here."""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def write(path, text, mode=0o600):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


class SshServer:
    """`names` lead to it by `ssh`, a command; all other hosts are as they are. `apart`: a folder of which the server
    has a copy of its own, empty at first, as another machine has; only root can give it one."""

    def __init__(self, folder, names, apart=None):
        self.folder, self.names, self._process = f"{folder}/ssh-server", names, None
        self._around = []
        if apart:
            own = f'mount -t tmpfs none "{apart}" && exec "$@"'
            self._around = ["unshare", "-m", "--propagation", "private", "sh", "-c", own, "sh"]
            done = subprocess.run([*self._around, "true"], stderr=subprocess.PIPE, text=True)
            if done.returncode != 0:
                raise Unavailable(f"the server cannot have files of its own: {done.stderr.strip()}")
        program = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if not program or not shutil.which("ssh-keygen"):
            raise Unavailable("there is no sshd or no ssh-keygen (Debian: openssh-server, openssh-client)")
        os.mkdir(self.folder, 0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/key"], check=True)
        if os.geteuid() == 0:
            # which it insists on, and the system's own service makes
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        for _ in range(5):  # somebody else may take the port first
            if self._start(program):
                return
        with open(f"{self.folder}/log") as log:
            raise Unavailable(f"sshd does not start: {log.read().strip()}")

    def _start(self, program):
        values = {"folder": self.folder, "port": free_port(), "names": " ".join(self.names)}
        self.port = values["port"]
        write(f"{self.folder}/server", SERVER % values)
        write(f"{self.folder}/client", CLIENT % values)
        with open(f"{self.folder}/key.pub") as file:
            write(f"{self.folder}/known", "server " + " ".join(file.read().split()[:2]) + "\n")
        self.ssh = f"ssh -F {self.folder}/client"
        with open(f"{self.folder}/log", "w") as log:
            self._process = subprocess.Popen([*self._around, program, "-D", "-e", "-f", f"{self.folder}/server"],
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                time.sleep(0.01)
                continue
            done = subprocess.run(f"{self.ssh} -o BatchMode=yes {self.names[0]} true", shell=True,
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode == 0:
                return True
            self.close()
            raise Unavailable(f"sshd lets nobody in: {done.stderr.strip()}")
        return False

    def close(self):
        if self._process and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
