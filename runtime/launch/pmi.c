#include "runtime/launch/pmi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char values_name[] = "skycc"; /* of the one set of values */

static void put(PmiServer *server, const char *key, const char *value)
{
    PmiPair pair = {arena_string(&server->arena, key), arena_string(&server->arena, value)};
    array_push(server->pairs, server->pair_count, server->pair_capacity, pair);
}

static const char *find(const PmiServer *server, const char *key)
{
    for (size_t i = 0; i < server->pair_count; i++)
        if (strcmp(server->pairs[i].key, key) == 0) return server->pairs[i].value;
    return NULL;
}

void pmi_open(PmiServer *server, int size)
{
    char mapping[48];
    snprintf(mapping, sizeof mapping, "(vector,(0,1,%d))", size);
    *server = (PmiServer){.size = size};
    put(server, "PMI_process_mapping", mapping);
}

void pmi_close(PmiServer *server)
{
    arena_free(&server->arena);
    free(server->pairs);
}

/* Copies what follows " name=" in the line, up to a space. "" if it is absent. */
static const char *member(const char *line, const char *name, char value[PMI_LINE])
{
    size_t length = strlen(name);
    value[0] = '\0';
    for (const char *at = line; at; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, name, length) != 0 || at[length] != '=') continue;
        snprintf(value, PMI_LINE, "%.*s", (int)strcspn(at + length + 1, " "), at + length + 1);
        break;
    }
    return value;
}

static void get_value(const PmiServer *server, const char *key, char answer[PMI_LINE])
{
    const char *value = find(server, key);
    if (value)
        snprintf(answer, PMI_LINE, "cmd=get_result rc=0 msg=success value=%s\n", value);
    else
        snprintf(answer, PMI_LINE, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
}

PmiEvent pmi_take(PmiServer *server, const char *line, char answer[PMI_LINE], int *exit_code)
{
    char command[PMI_LINE], key[PMI_LINE], value[PMI_LINE];
    member(line, "cmd", command);
    member(line, "key", key);
    answer[0] = '\0';
    if (strcmp(command, "init") == 0) {
        snprintf(answer, PMI_LINE, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
        return PMI_JOINED;
    } else if (strcmp(command, "get_maxes") == 0) {
        snprintf(answer, PMI_LINE, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n");
    } else if (strcmp(command, "get_appnum") == 0) {
        snprintf(answer, PMI_LINE, "cmd=appnum appnum=0\n");
    } else if (strcmp(command, "get_universe_size") == 0) {
        snprintf(answer, PMI_LINE, "cmd=universe_size size=%d\n", server->size);
    } else if (strcmp(command, "get_my_kvsname") == 0) {
        snprintf(answer, PMI_LINE, "cmd=my_kvsname kvsname=%s\n", values_name);
    } else if (strcmp(command, "put") == 0) {
        put(server, key, member(line, "value", value));
        snprintf(answer, PMI_LINE, "cmd=put_result rc=0 msg=success\n");
    } else if (strcmp(command, "get") == 0) {
        get_value(server, key, answer);
    } else if (strcmp(command, "barrier_in") == 0) {
        if (++server->waiting < server->size) return PMI_WAIT;
        server->waiting = 0;
        snprintf(answer, PMI_LINE, "cmd=barrier_out\n");
        return PMI_RELEASE;
    } else if (strcmp(command, "finalize") == 0) {
        snprintf(answer, PMI_LINE, "cmd=finalize_ack\n");
        return PMI_GOODBYE;
    } else if (strcmp(command, "abort") == 0) {
        *exit_code = atoi(member(line, "exitcode", value));
        return PMI_ABORT;
    } else {
        return PMI_NO_MESSAGE;
    }
    return PMI_ANSWER;
}
