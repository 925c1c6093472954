-- On the primary, as its superuser:
--   psql --set=password="$(cat log-password)" --file=postgres.sql
-- The first node makes the tables that it needs, in the schema spindle of this database.

CREATE ROLE spindle LOGIN PASSWORD :'password';
CREATE DATABASE spindle OWNER spindle;
REVOKE CONNECT ON DATABASE spindle FROM PUBLIC;
-- With this `spindle cluster log` says how the standbys are, and the role sees statistics of all databases:
-- GRANT pg_read_all_stats TO spindle;

-- An acknowledged record is on the standby too. Without a standby that is waited for, the log is as safe
-- as one machine. Name the standby so in its primary_conninfo: application_name=standby_1
ALTER SYSTEM SET synchronous_standby_names = 'standby_1';
ALTER SYSTEM SET synchronous_commit = 'on';
SELECT pg_reload_conf();
