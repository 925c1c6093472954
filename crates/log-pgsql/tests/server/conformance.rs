//! The suite of every log.

use std::sync::Arc;

use spindle_log_pgsql::PgsqlLog;
use spindle_testkit::log_conformance;

use crate::harness::fresh;

#[test]
fn the_log_keeps_the_contract() {
    log_conformance::run(&mut || Arc::new(fresh().0));
}

#[test]
fn the_log_keeps_the_contract_between_two_writers() {
    log_conformance::run_shared(&mut || {
        let (log, options) = fresh();
        [Arc::new(log), Arc::new(PgsqlLog::open(&options).unwrap())]
    });
}
