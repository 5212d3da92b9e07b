/* What appears under final names, and what is never touched. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/input_files.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

/* Writes out/first and out/NAME, with the text in both. */
static bool write_output(const char *name, const char *text, bool keep_others, Diagnostics *diagnostics)
{
    OutputDirectory output;
    if (!directory_create(&output, "out/", keep_others, diagnostics)) return false;
    char path[256];
    snprintf(path, sizeof path, "%s/first", output.temporary);
    write_text(path, text);
    snprintf(path, sizeof path, "%s/%s", output.temporary, name);
    write_text(path, text);
    return directory_commit(&output, diagnostics);
}

/* No partial file is left next to `out`. */
static void assert_no_leftovers(void) { must_run("! ls -A | grep partial"); }

static void a_former_output_is_replaced(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    assert_true(write_output("old", "1", false, &diagnostics));
    assert_true(write_output("new", "2", false, &diagnostics));
    assert_holds("out/first", "2");
    assert_holds("out/new", "2");
    assert_int_not_equal(access("out/old", F_OK), 0);
    assert_holds("out/" DIRECTORY_LIST, "skycc output/1\nfirst\nnew\n");
    assert_no_leftovers();
    must_run("rm -r out");
}

static void what_others_wrote_is_kept(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    assert_true(write_output("old", "1", false, &diagnostics));
    write_text("out/thesis", "years of work");
    must_run("mkdir -p out/checkpoints/step-1");
    assert_false(write_output("new", "2", false, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "skycc did not write: 'checkpoints'");
    assert_holds("out/first", "1");
    assert_holds("out/thesis", "years of work");
    assert_true(write_output("new", "2", true, &diagnostics));
    assert_holds("out/first", "2");
    assert_holds("out/thesis", "years of work");
    assert_int_equal(access("out/checkpoints/step-1", F_OK), 0);
    assert_int_not_equal(access("out/old", F_OK), 0);
    assert_no_leftovers();
    /* Nor is it overwritten. */
    assert_false(write_output("thesis", "3", true, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "thesis: is in the place of an output file");
    assert_holds("out/first", "2");
    assert_holds("out/thesis", "years of work");
    assert_no_leftovers();
    must_run("rm -r out");
}

/* What was a regular file when the list was written is no more: a link to somebody's file, a directory. */
static void the_list_is_not_trusted_with_more_than_files(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    write_text("precious", "gold");
    must_run("mkdir -p out/dir && ln -s ../precious out/link && echo x >out/dir/file");
    write_text("out/" DIRECTORY_LIST, "skycc output/1\nlink\ndir\n../precious\n");
    assert_false(write_output("new", "1", false, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "skycc did not write: 'dir'");
    assert_true(write_output("new", "1", true, &diagnostics));
    assert_holds("precious", "gold");
    assert_holds("out/link", "gold");
    assert_holds("out/dir/file", "x\n");
    write_text("out/" DIRECTORY_LIST, "first\nnew\n"); /* no list of skycc's */
    must_run("rm -r out/dir out/link");
    assert_false(write_output("new", "2", false, &diagnostics));
    diagnostics_free(&diagnostics);
    assert_holds("out/first", "1");
    must_run("rm -r out");
}

/* Writes out/first, out/NAME/inner and out/NAME/more. */
static bool write_nested(const char *name, const char *text, bool keep_others, Diagnostics *diagnostics)
{
    OutputDirectory output;
    if (!directory_create(&output, "out", keep_others, diagnostics)) return false;
    char path[256];
    snprintf(path, sizeof path, "%s/%s", output.temporary, name);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/%s/inner", output.temporary, name);
    write_text(path, text);
    snprintf(path, sizeof path, "%s/%s/more", output.temporary, name);
    write_text(path, text);
    snprintf(path, sizeof path, "%s/first", output.temporary);
    write_text(path, text);
    return directory_commit(&output, diagnostics);
}

static void directories_in_it_have_lists_of_their_own(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    assert_true(write_nested("paris", "1", false, &diagnostics));
    assert_holds("out/" DIRECTORY_LIST, "skycc output/1\nfirst\nparis/\n");
    assert_holds("out/paris/" DIRECTORY_LIST, "skycc output/1\ninner\nmore\n");
    assert_true(write_nested("paris", "2", false, &diagnostics));
    assert_holds("out/paris/inner", "2");
    write_text("out/paris/secret.key", "mine");
    assert_false(write_nested("oslo", "3", false, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "skycc did not write: 'paris/secret.key'");
    assert_holds("out/paris/inner", "2");
    assert_true(write_nested("oslo", "3", true, &diagnostics));
    assert_holds("out/paris/secret.key", "mine");
    assert_int_not_equal(access("out/paris/inner", F_OK), 0);
    assert_holds("out/oslo/inner", "3");
    assert_no_leftovers();
    /* What is a stranger's directory now is not written into. */
    assert_false(write_nested("paris", "4", true, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "paris: is in the place of an output file");
    must_run("rm -r out/paris && mv out/oslo/inner out/kept && ln -s ../kept out/oslo/inner");
    assert_false(write_nested("oslo", "5", true, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "inner: is in the place of an output file");
    assert_holds("out/kept", "3");
    assert_no_leftovers();
    must_run("rm -r out");
}

static void what_comes_meanwhile_is_kept(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    OutputDirectory output;
    assert_true(directory_create(&output, "out", false, &diagnostics));
    assert_int_equal(mkdir("out", 0777), 0);
    write_text("out/notes", "mine");
    assert_false(directory_commit(&output, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "skycc did not write: 'notes'");
    assert_holds("out/notes", "mine");
    assert_no_leftovers();
    must_run("rm -r out");
}

/* A link of another user's, where a temporary file is to be, leads nowhere. */
static void devices_and_pipes_are_written_to(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    struct stat status;
    char text[8] = "";
    assert_int_equal(mkfifo("pipe", 0600), 0);
    int reader = open("pipe", O_RDWR); /* so that nobody waits for the other */
    assert_true(reader >= 0);
    assert_true(file_write_all("pipe", "words", 5, &diagnostics));
    assert_int_equal(read(reader, text, sizeof text), 5);
    assert_string_equal(text, "words");
    OutputFile file;
    assert_true(file_create(&file, "pipe", &diagnostics));
    file_abandon(&file);
    close(reader);
    assert_int_equal(symlink("/dev/null", "nowhere"), 0);
    assert_true(file_write_all("nowhere", "words", 5, &diagnostics));
    assert_int_equal(lstat("nowhere", &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(lstat("pipe", &status), 0);
    assert_true(S_ISFIFO(status.st_mode));
    assert_int_equal(symlink("/dev/full", "full"), 0);
    assert_false(file_write_all("full", "words", 5, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "cannot write");
    /* What a shell has opened, by names that lead to it: written to from where it stands. */
    int opened = open("opened", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char name[64];
    snprintf(name, sizeof name, "/dev/fd/%d", opened);
    assert_int_equal(symlink(name, "shell"), 0);
    assert_true(file_write_all(name, "some ", 5, &diagnostics));
    assert_true(file_write_all("shell", "words", 5, &diagnostics));
    must_run("[ -h shell ] && [ \"$(cat opened)\" = 'some words' ]");
    input_files_note(opened, "opened");
    assert_false(file_write_all("shell", "words", 5, &diagnostics));
    expect_complaint(&diagnostics, EXIT_USAGE, "would replace");
    close(opened);
    assert_no_leftovers();
    must_run("rm pipe nowhere full shell opened");
}

static void temporary_files_do_not_follow_links(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    char name[64];
    write_text("victim", "whole");
    const char *const forms[] = {"result.partial-%ld", "result.partial-%ld-0"};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, forms[i], (long)getpid());
        assert_int_equal(symlink("victim", name), 0);
    }
    assert_true(file_write_all("result", "text", 4, &diagnostics));
    assert_holds("result", "text");
    assert_holds("victim", "whole");
    struct stat status;
    assert_int_equal(lstat("result", &status), 0);
    assert_true(S_ISREG(status.st_mode));
    assert_int_equal(lstat(name, &status), 0); /* not ours to remove */
    assert_int_equal(unlink("result"), 0);
}

/* A process that makes both and is killed, and whose child, if it has one, stays: it shares the locks. Returns the
 * child's number. */
static pid_t leave_unfinished(bool with_child, pid_t *killed)
{
    Diagnostics diagnostics = {0};
    OutputFile file;
    OutputDirectory directory;
    int status, number[2];
    pid_t child = 0;
    assert_int_equal(pipe(number), 0);
    *killed = fork();
    if (*killed == 0) {
        file_create(&file, "model", &diagnostics);
        directory_create(&directory, "folder", true, &diagnostics);
        child = with_child ? fork() : 0;
        if (with_child && child == 0) pause();
        if (write(number[1], &child, sizeof child) != sizeof child) _exit(1);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(read(number[0], &child, sizeof child), sizeof child);
    assert_int_equal(waitpid(*killed, &status, 0), *killed);
    close(number[0]);
    close(number[1]);
    return child;
}

static void write_both(void)
{
    Diagnostics diagnostics = {0};
    OutputDirectory directory;
    assert_true(file_write_all("model", "text", 4, &diagnostics));
    assert_true(directory_create(&directory, "folder", true, &diagnostics));
    assert_true(directory_commit(&directory, &diagnostics));
}

static bool is_left(const char *name, pid_t process)
{
    char left[64];
    snprintf(left, sizeof left, "%s.partial-%ld-0", name, (long)process);
    return access(left, F_OK) == 0;
}

static void what_killed_processes_left_is_removed(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    OutputFile other;
    pid_t killed, holder;
    leave_unfinished(false, &killed);
    assert_true(is_left("model", killed) && is_left("folder", killed));
    assert_true(file_create(&other, "mode", &diagnostics)); /* of another name, and a process that is there */
    assert_true(is_left("model", killed) && is_left("folder", killed));
    write_both();
    assert_false(is_left("model", killed) || is_left("folder", killed));
    assert_int_equal(access(other.temporary, F_OK), 0);
    file_abandon(&other);
    /* Of a process that lives where its number is not known. */
    holder = leave_unfinished(true, &killed);
    write_both();
    assert_true(is_left("model", killed) && is_left("folder", killed));
    kill(holder, SIGKILL);
    while (is_left("model", killed) || is_left("folder", killed)) write_both(); /* until its end is done */
    must_run("rm -r model folder");
}

static void expect_spared(const char *output)
{
    Diagnostics diagnostics = {0};
    assert_false(file_write_all(output, "x", 1, &diagnostics));
    expect_complaint(&diagnostics, EXIT_USAGE, "would replace 'input', which this command reads");
}

static void inputs_are_not_replaced(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    MappedFile file;
    OutputFile late;
    must_run(
        "printf precious >input && touch other && mkdir below && ln -s ../input below/link && ln input below/hard");
    assert_true(file_create(&late, "input", &diagnostics)); /* before it is read */
    assert_true(file_map(&file, "input", &diagnostics));
    file_unmap(&file); /* what was read stays an input */
    expect_spared("input");
    expect_spared("./below/../input");
    expect_spared("below/link");
    expect_spared("below/hard");
    assert_false(file_commit(&late, &diagnostics));
    expect_complaint(&diagnostics, EXIT_USAGE, "input: error: would replace 'input', which this command reads");
    assert_holds("below/hard", "precious");
    must_run("! ls -A | grep input.partial");
    must_run("rm -r below");
    /* What this process wrote may be read and written again. */
    for (int i = 0; i < 3; i++) {
        assert_true(file_write_all("other", "x", 1, &diagnostics));
        assert_true(file_map(&file, "other", &diagnostics));
        file_unmap(&file);
    }
}

static void directories_with_inputs_are_not_replaced(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    MappedFile file;
    must_run("rm -rf out");
    assert_true(write_output("old", "1", false, &diagnostics));
    must_run("cp out/old copy && mv copy out/old"); /* made by another process */
    assert_true(file_map(&file, "out/old", &diagnostics));
    file_unmap(&file);
    assert_false(write_output("new", "2", true, &diagnostics));
    expect_complaint(&diagnostics, EXIT_USAGE, "out/: error: would replace 'out/old', which this command reads");
    assert_holds("out/old", "1");
    must_run("echo dear diary >mine");
    assert_true(file_map(&file, "mine", &diagnostics));
    file_unmap(&file);
    OutputDirectory output;
    assert_false(directory_create(&output, "mine", true, &diagnostics));
    expect_complaint(&diagnostics, EXIT_USAGE, "mine: error: would replace 'mine', which this command reads");
    must_run("rm -r out");
}

/* Writes `again` anew; its inode. */
static ino_t write_again(const char *text)
{
    Diagnostics diagnostics = {0};
    OutputFile file;
    struct stat status;
    assert_true(file_create_again(&file, "again", &diagnostics));
    fputs(text, file.stream);
    assert_true(file_commit(&file, &diagnostics));
    assert_holds("again", text);
    assert_int_equal(stat("again", &status), 0);
    return status.st_ino;
}

/* Two files take turns under a name, but one that somebody still reads, or that has another name, is left alone. */
static void a_file_that_was_replaced_is_overwritten_if_nobody_has_it(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    MappedFile mapped;
    ino_t first = write_again("long one"), second = write_again("2");
    assert_int_not_equal(first, second);
    assert_int_equal(write_again("3"), first);
    assert_true(file_map(&mapped, "again", &diagnostics));
    input_files_release_path("again");
    write_again("4");
    assert_int_not_equal(write_again("5"), first);
    assert_memory_equal(mapped.bytes, "3", 1);
    file_unmap(&mapped);
    must_run("ln again twin");
    write_again("6");
    write_again("7");
    write_again("8");
    assert_holds("twin", "5");
    must_run("rm twin");
    file_drop_retired("again");
    assert_int_not_equal(access(FILE_RETIRED_MARK "again", F_OK), 0);
    must_run("rm again; ! ls -A | grep again");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_former_output_is_replaced),
        cmocka_unit_test(what_others_wrote_is_kept),
        cmocka_unit_test(the_list_is_not_trusted_with_more_than_files),
        cmocka_unit_test(directories_in_it_have_lists_of_their_own),
        cmocka_unit_test(what_comes_meanwhile_is_kept),
        cmocka_unit_test(devices_and_pipes_are_written_to),
        cmocka_unit_test(temporary_files_do_not_follow_links),
        cmocka_unit_test(what_killed_processes_left_is_removed),
        cmocka_unit_test(inputs_are_not_replaced),
        cmocka_unit_test(a_file_that_was_replaced_is_overwritten_if_nobody_has_it),
        cmocka_unit_test(directories_with_inputs_are_not_replaced),
    };
    return cmocka_run_group_tests(tests, scratch_folder_enter, scratch_folder_leave);
}
