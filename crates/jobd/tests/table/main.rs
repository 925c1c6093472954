//! Job tables on the real databases: one suite that MariaDB, PostgreSQL and SQLite all pass, and
//! what only one of them has.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod conformance;
mod crowd;
mod database;
mod mariadb;
mod outage;
mod output;
mod pgsql;
mod schema;
mod servers;
mod sqlite;
mod tls;
mod whole;

/// Makes each check of the suite a test of this database.
macro_rules! suite {
    ($name:ident, $database:path) => {
        mod $name {
            suite!(@checks $database, conformance,
                waiting_rows_are_claimed_lowest_id_first,
                a_verdict_changes_status_and_mark_only,
                rows_of_other_statuses_and_targets_are_not_found,
                rows_are_found_by_id_whatever_their_status,
                many_ids_and_targets_are_found_at_once,
                a_started_row_runs_and_a_finished_one_is_done,
                only_rows_with_the_mark_are_written,
                owned_rows_are_told_and_accepted_ones_given_back,
                a_row_may_start_in_its_claim_and_be_given_back_unstarted,
                columns_of_the_owner_stay_as_they_are,
            );
            suite!(@checks $database, output,
                output_comes_back_as_it_was_or_replaced,
                a_mebibyte_of_output_is_kept_whole,
                a_row_that_is_refused_harms_no_other,
            );
            suite!(@checks $database, crowd,
                many_workers_run_each_row_once,
                an_abandoned_call_leaves_no_transaction_open,
            );
            suite!(@checks $database, schema,
                a_missing_table_is_named,
                a_missing_column_is_named,
                any_name_of_a_table_is_quoted,
            );
        }
    };
    (@checks $database:path, $module:ident, $($check:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                crate::$module::$check(&<$database>::new().await).await;
            }
        )*
    };
}

suite!(on_mariadb, crate::database::Mariadb);
suite!(on_pgsql, crate::database::Pgsql);
suite!(on_sqlite, crate::database::Sqlite);
