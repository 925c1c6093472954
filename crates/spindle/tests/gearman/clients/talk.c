/* A worker and a client over libgearman. See main.rs for what they do and print. */
#include <libgearman/gearman.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *prefix;

static const char *named(const char *function) {
  static char name[256];
  snprintf(name, sizeof(name), "%s-%s", prefix, function);
  return name;
}

/* ---- the worker ---- */

static gearman_return_t reverse(gearman_job_st *job, void *context) {
  (void)context;
  size_t size = gearman_job_workload_size(job);
  const char *in = gearman_job_workload(job);
  char *out = malloc(size + 1);
  for (size_t at = 0; at < size; at++) out[at] = in[size - 1 - at];
  gearman_return_t sent = gearman_job_send_complete(job, out, size);
  free(out);
  return sent;
}

static gearman_return_t steps(gearman_job_st *job, void *context) {
  (void)context;
  gearman_job_send_status(job, 1, 2);
  gearman_job_send_data(job, "part", 4);
  return gearman_job_send_complete(job, "end", 3);
}

static gearman_return_t boom(gearman_job_st *job, void *context) {
  (void)context;
  return gearman_job_send_exception(job, "boom", 4);
}

static int work(const char *host, int port) {
  gearman_worker_st *worker = gearman_worker_create(NULL);
  gearman_worker_add_server(worker, host, (in_port_t)port);
  struct {
    const char *name;
    gearman_function_fn *call;
  } functions[] = {{"reverse", reverse}, {"steps", steps}, {"boom", boom}};
  for (size_t at = 0; at < 3; at++) {
    const char *name = named(functions[at].name);
    gearman_function_t call = gearman_function_create(functions[at].call);
    gearman_worker_define_function(worker, name, strlen(name), call, 0, NULL);
  }
  puts("ready");
  fflush(stdout);
  while (true) gearman_worker_work(worker);
  return 0;
}

/* ---- the client ---- */

struct heard {
  char text[256];
  char exception[256];
};

static void hear(struct heard *heard, const char *data, size_t size) {
  size_t used = strlen(heard->text);
  snprintf(heard->text + used, sizeof(heard->text) - used, " %.*s", (int)size, data);
}

static gearman_return_t on_status(gearman_task_st *task) {
  char status[64];
  int size = snprintf(status, sizeof(status), "%u/%u", gearman_task_numerator(task),
                      gearman_task_denominator(task));
  hear(gearman_task_context(task), status, (size_t)size);
  return GEARMAN_SUCCESS;
}

static gearman_return_t on_data(gearman_task_st *task) {
  hear(gearman_task_context(task), gearman_task_data(task), gearman_task_data_size(task));
  return GEARMAN_SUCCESS;
}

static gearman_return_t on_exception(gearman_task_st *task) {
  struct heard *heard = gearman_task_context(task);
  snprintf(heard->exception, sizeof(heard->exception), "%.*s", (int)gearman_task_data_size(task),
           (const char *)gearman_task_data(task));
  return GEARMAN_SUCCESS;
}

static void ask(gearman_client_st *client, const char *function, struct heard *heard) {
  gearman_return_t ret;
  memset(heard, 0, sizeof(*heard));
  gearman_client_add_task(client, NULL, heard, named(function), NULL, "hello", 5, &ret);
  gearman_client_run_tasks(client);
  gearman_client_task_free_all(client);
}

static void foreground(gearman_client_st *client) {
  gearman_return_t ret;
  size_t size;
  for (;;) {
    char *result = gearman_client_do(client, named("reverse"), NULL, "hello", 5, &size, &ret);
    if (ret == GEARMAN_WORK_DATA || ret == GEARMAN_WORK_STATUS) continue;
    printf("foreground: %.*s\n", (int)size, result ? result : gearman_client_error(client));
    free(result);
    return;
  }
}

static void background(gearman_client_st *client) {
  char handle[GEARMAN_JOB_HANDLE_SIZE];
  bool known = true, running;
  uint32_t numerator, denominator;
  gearman_client_do_background(client, named("reverse"), NULL, "hello", 5, handle);
  for (int tries = 0; known && tries < 1000; tries++) {
    gearman_client_job_status(client, handle, &known, &running, &numerator, &denominator);
    usleep(10000);
  }
  printf("background: %s\n", known ? "not done" : "done");
}

static int ask_all(const char *host, int port, const char *own) {
  gearman_client_st *client = gearman_client_create(NULL);
  gearman_client_add_server(client, host, (in_port_t)port);
  gearman_client_set_status_fn(client, on_status);
  gearman_client_set_data_fn(client, on_data);
  gearman_client_set_complete_fn(client, on_data);
  gearman_client_set_exception_fn(client, on_exception);
  gearman_client_set_server_option(client, "exceptions", strlen("exceptions"));
  struct heard heard;
  foreground(client);
  background(client);
  ask(client, "steps", &heard);
  printf("steps:%s\n", heard.text);
  ask(client, "boom", &heard);
  printf("exception: %s\n", heard.exception);
  char one[GEARMAN_JOB_HANDLE_SIZE], two[GEARMAN_JOB_HANDLE_SIZE];
  gearman_client_do_low_background(client, own, NULL, "low", 3, one);
  gearman_client_do_background(client, own, NULL, "normal", 6, one);
  gearman_client_do_high_background(client, own, NULL, "high", 4, one);
  puts("priorities: sent");
  gearman_client_do_background(client, own, "u", "first", 5, one);
  gearman_client_do_background(client, own, "u", "second", 6, two);
  printf("unique: %s\n", strcmp(one, two) ? "two" : "one");
  gearman_client_free(client);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  prefix = argv[4];
  printf("version: libgearman %s\n", gearman_version());
  int port = atoi(argv[3]);
  if (!strcmp(argv[1], "worker")) return work(argv[2], port);
  return argc < 6 ? 2 : ask_all(argv[2], port, argv[5]);
}
