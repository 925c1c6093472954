-- A table of jobs for SQLite.
-- More columns are welcome: jobd touches only these. Put your job's name and data beside them.
-- Readers and writers do not wait for each other with a write-ahead log; the file remembers it.
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS jobs (
  id integer PRIMARY KEY AUTOINCREMENT,
  target text NOT NULL,
  time_created integer NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS integer)),
  time_started integer NOT NULL DEFAULT 0,
  time_finished integer NOT NULL DEFAULT 0,
  status text NOT NULL DEFAULT 'waiting'
    CHECK (status IN ('waiting', 'manual', 'accepted', 'running', 'done', 'ignored')),
  result text DEFAULT NULL CHECK (result IN ('ok', 'fail')),
  return_code integer DEFAULT NULL,
  sig text DEFAULT NULL,
  stdout text DEFAULT NULL,
  stderr text DEFAULT NULL
);
CREATE INDEX IF NOT EXISTS jobs_status_target_idx ON jobs (status, target, id);
