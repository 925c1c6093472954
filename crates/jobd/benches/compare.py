#!/usr/bin/env python3
"""jobd beside the original on Node.js: one MariaDB, the same table, the same launcher.

    cargo build --release -p spindle-jobd
    python3 crates/jobd/benches/compare.py --jobd target/release --original FOLDER

FOLDER is a checkout of the original with its dependencies installed (npm install). Needs mariadbd,
mariadb-install-db, mariadb, node and cc. Everything runs on loopback, in a temporary folder.

Each round measures, for both in turn: the resident memory of an idle worker; jobs per second (rows
that wait, one poll, until the last is done); the time from a poke at the master to the start of the
process. Between them, a bare loop of posix_spawn with as many processes at a time.
"""

import argparse
import atexit
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

SPAWN_LOOP = r"""
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
extern char **environ;
/* spawn-loop COUNT AT_ONCE: starts that many processes, prints processes per second. */
int main(int argc, char **argv) {
    int count = atoi(argv[1]), at_once = atoi(argv[2]), running = 0;
    struct timespec from, to;
    (void)argc;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < count; i++) {
        char id[16], *args[] = {"/bin/true", id, NULL};
        pid_t pid;
        sprintf(id, "%d", i);
        if (running == at_once) { wait(NULL); running--; }
        if (posix_spawn(&pid, args[0], NULL, NULL, args, environ)) return 1;
        running++;
    }
    while (running--) wait(NULL);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%f\n", count / (to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9));
    return 0;
}
"""

STAMP = r"""
#include <stdio.h>
#include <time.h>
/* stamp FOLDER ID: leaves the time at which it began. */
int main(int argc, char **argv) {
    struct timespec now;
    char path[512];
    clock_gettime(CLOCK_REALTIME, &now);
    (void)argc;
    snprintf(path, sizeof path, "%s/%s", argv[1], argv[2]);
    FILE *file = fopen(path, "w");
    if (!file) return 1;
    fprintf(file, "%lld\n", now.tv_sec * 1000000000LL + now.tv_nsec);
    return fclose(file) != 0;
}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def compiled(folder, name, source):
    path = os.path.join(folder, name)
    with open(path + ".c", "w") as file:
        file.write(source)
    subprocess.run(["cc", "-O2", "-o", path, path + ".c"], check=True)
    return path


def await_port(port, output=None, host="127.0.0.1"):
    give_up = time.time() + 60
    while time.time() < give_up:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit(f"nobody listens on port {port}: {open(output).read() if output else ''}")


# The original does not look at mysql_port. A loopback address of its own keeps out of the way of a
# database that uses the port already.
DATABASE_HOST, DATABASE_PORT = "127.77.0.1", 3306


class Database:
    """A MariaDB of our own, with its default durability."""

    def __init__(self, folder, schema):
        data = os.path.join(folder, "data")
        subprocess.run(["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal",
                        "--skip-test-db", f"--datadir={data}", "--user=root"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = open(os.path.join(folder, "mariadb.log"), "w")
        self.server = subprocess.Popen(
            ["mariadbd", "--no-defaults", f"--bind-address={DATABASE_HOST}", f"--port={DATABASE_PORT}",
             f"--datadir={data}", f"--socket={folder}/socket", f"--pid-file={folder}/pid", "--user=root"],
            stdout=log, stderr=log)
        await_port(DATABASE_PORT, host=DATABASE_HOST)
        self.client = subprocess.Popen(
            ["mariadb", "--no-defaults", "-uroot", f"--socket={folder}/socket", "-N", "--unbuffered"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.run("CREATE DATABASE jobd; CREATE USER jobd@'%' IDENTIFIED BY 'jobd'; "
                 "CREATE USER jobd@localhost IDENTIFIED BY 'jobd'; "
                 "GRANT ALL ON jobd.* TO jobd@'%'; GRANT ALL ON jobd.* TO jobd@localhost; USE jobd")
        self.run(re.sub(r"--.*", "", schema).replace("\n", " "))
        self.settings = self.ask("SELECT CONCAT(VERSION(), ', innodb_flush_log_at_trx_commit = ', "
                                 "@@innodb_flush_log_at_trx_commit)")

    def run(self, sql):
        self.ask(sql.rstrip().rstrip(";") + "; SELECT 'done'")

    def ask(self, sql):
        """The first line of what the statements answer."""
        self.client.stdin.write(sql + ";\n")
        self.client.stdin.flush()
        return self.client.stdout.readline().strip()

    def fill(self, count):
        self.run("TRUNCATE TABLE jobs")
        self.run("INSERT INTO jobs (target, time_created, status) "
                 f"SELECT 't', 0, 'waiting' FROM seq_1_to_{count}")

    def stop(self):
        self.client.stdin.close()
        self.client.wait()
        self.server.terminate()
        self.server.wait()


class Peer:
    """Speaks jobd's protocol."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.no = 1

    def ask(self, kind, data):
        self.no += 1
        message = json.dumps([0, {"no": self.no, "type": kind, "data": data}]) + "\4"
        self.socket.sendall(message.encode())
        text = b""
        while not text.endswith(b"\4"):
            text += self.socket.recv(65536)
        answer = json.loads(text[:-1])[1]
        if "error" in answer:
            sys.exit(f"{kind}: {answer['error']}")
        return answer["data"]


class Daemons:
    """A master and a worker, of one program or the other."""

    def __init__(self, name, commands, folder, database, launcher):
        self.master_port, self.worker_port = free_port(), free_port()
        path = os.path.join(folder, f"{name}-")
        with open(path + "master.conf", "w") as file:
            file.write(f"host = 127.0.0.1\nport = {self.master_port}\n"
                       f"log_file = {path}master.log\nlog_level_file = warn\nlog_level_console = error\n")
        with open(path + "worker.conf", "w") as file:
            file.write(f"host = 127.0.0.1\nport = {self.worker_port}\n"
                       f"master_host = 127.0.0.1\nmaster_port = {self.master_port}\n"
                       f"log_file = {path}worker.log\nlog_level_file = warn\nlog_level_console = error\n"
                       f"mysql_host = {DATABASE_HOST}\nmysql_port = {DATABASE_PORT}\nmysql_user = jobd\n"
                       "mysql_password = jobd\nmysql_database = jobd\nmysql_table = jobs\n"
                       f"mysql_fetch_limit = 100\nlauncher = {launcher}\n[targets]\nt = 20\n")
        env = dict(os.environ, STATE_DIRECTORY=folder)
        self.output = path + "output"
        out = open(self.output, "a")
        def start(program, config):
            process = subprocess.Popen(
                [*commands[program], "--config", path + config], stdout=out, stderr=out, env=env)
            # Nothing is left behind when a run fails half-way.
            atexit.register(process.kill)
            return process

        self.master = start("master", "master.conf")
        await_port(self.master_port, self.output)
        self.worker = start("worker", "worker.conf")
        await_port(self.worker_port, self.output)
        give_up = time.time() + 30
        while not Peer(self.master_port).ask("status", {})["workers"]:
            if time.time() > give_up:
                sys.exit(f"{name}: the worker does not register")
            time.sleep(0.05)

    def idle_kib(self):
        time.sleep(2)
        status = open(f"/proc/{self.worker.pid}/status").read()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))

    def stop(self):
        for process in (self.worker, self.master):
            process.terminate()
            process.wait()


def jobs_per_s(daemons, database, count):
    database.fill(count)
    peer = Peer(daemons.worker_port)
    begin = time.time()
    peer.ask("poll", {"targets": ["t"]})
    while True:
        if int(database.ask("SELECT COUNT(*) FROM jobs WHERE status = 'done'")) == count:
            return count / (time.time() - begin)
        if time.time() - begin > 300:
            sys.exit("rows are left")
        time.sleep(0.05)


def start_times_ms(daemons, database, folder, count):
    """From a poke at the master to the start of the process, each."""
    database.run("TRUNCATE TABLE jobs")
    peer, times = Peer(daemons.master_port), []
    for index in range(1, count + 1):
        path = os.path.join(folder, str(index))
        database.run("INSERT INTO jobs (target, time_created, status) VALUES ('t', 0, 'waiting')")
        # Longer than pokes are joined.
        time.sleep(0.6)
        begin = time.time_ns()
        peer.ask("poke", {"targets": ["t"]})
        give_up = time.time() + 20
        while not (os.path.exists(path) and os.path.getsize(path)):
            if time.time() > give_up:
                sys.exit("a poked job does not start")
            time.sleep(0.002)
        times.append((int(open(path).read()) - begin) / 1e6)
        os.unlink(path)
    return times


def measured(database, folder, commands, tools, rounds, count, pokes):
    figures = {name: {"jobs/s": [], "idle KiB": [], "start ms": []} for name in commands}
    bare = []
    for _ in range(rounds):
        for name, programs in commands.items():
            database.run("TRUNCATE TABLE jobs")
            daemons = Daemons(name, programs, folder, database, "/bin/true {id}")
            figures[name]["idle KiB"].append(daemons.idle_kib())
            figures[name]["jobs/s"].append(jobs_per_s(daemons, database, count))
            daemons.stop()
        loop = subprocess.run([tools["spawn-loop"], str(count), "20"], capture_output=True, text=True)
        bare.append(float(loop.stdout))
    stamps = os.path.join(folder, "stamps")
    os.mkdir(stamps)
    for name, programs in commands.items():
        database.run("TRUNCATE TABLE jobs")
        launcher = f"{tools['stamp']} {stamps} {{id}}"
        daemons = Daemons(name, programs, folder, database, launcher)
        figures[name]["start ms"] = start_times_ms(daemons, database, stamps, pokes)
        daemons.stop()
    return figures, bare


def shown(values):
    return f"{statistics.median(values):10.1f}  ({min(values):.1f} to {max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobd", required=True, help="folder of jobd and jobd-master")
    parser.add_argument("--original", required=True, help="checkout of the original")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=3000)
    parser.add_argument("--pokes", type=int, default=40)
    given = parser.parse_args()
    source = os.path.join(given.original, "src")
    commands = {
        "original": {"worker": ["node", f"{source}/jobd.js"], "master": ["node", f"{source}/jobd-master.js"]},
        "ours": {"worker": [f"{given.jobd}/jobd"], "master": [f"{given.jobd}/jobd-master"]},
    }
    schema = subprocess.run([f"{given.jobd}/jobd", "schema", "mysql"], capture_output=True, text=True, check=True)
    folder = tempfile.mkdtemp()
    try:
        tools = {"spawn-loop": compiled(folder, "spawn-loop", SPAWN_LOOP), "stamp": compiled(folder, "stamp", STAMP)}
        database = Database(folder, schema.stdout)
        try:
            node = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
            print(f"MariaDB {database.settings}; Node {node}; {given.jobs} jobs, {given.rounds} rounds, "
                  f"concurrency 20, fetch limit 100")
            figures, bare = measured(database, folder, commands, tools, given.rounds, given.jobs, given.pokes)
        finally:
            database.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for what in ("jobs/s", "idle KiB", "start ms"):
        for name in commands:
            print(f"{what:9} {name:9} {shown(figures[name][what])}")
    print(f"{'jobs/s':9} {'bare loop':9} {shown(bare)}")
    middle = {name: {what: statistics.median(values) for what, values in of.items()} for name, of in figures.items()}
    ours, theirs = middle["ours"], middle["original"]
    wanted = min(4 * theirs["jobs/s"], 0.8 * statistics.median(bare))
    for what, is_met in (
        (f"jobs/s: {ours['jobs/s'] / theirs['jobs/s']:.2f} x the original, "
         f"{ours['jobs/s'] / statistics.median(bare):.2f} x the bare loop; wanted {wanted:.0f}",
         ours["jobs/s"] >= wanted),
        (f"idle memory: {ours['idle KiB'] / theirs['idle KiB']:.2f} x; wanted 0.25", ours["idle KiB"] <= theirs["idle KiB"] / 4),
        (f"poke to start, p50: {ours['start ms'] / theirs['start ms']:.2f} x; wanted 0.5", ours["start ms"] <= theirs["start ms"] / 2),
    ):
        print("met     " if is_met else "NOT MET ", what)


if __name__ == "__main__":
    main()
