//! What every job table must do, by the contract.

use std::collections::BTreeMap;

use spindle_jobd::table::{
    Claimed, Finish, Found, JobTable, Mark, Origin, Owned, Pick, RowId, Status, Verdict, Written,
};

use crate::database::{Database, Row};

pub const WAITING: &str = "waiting";

pub fn mark(owner: &str) -> Mark {
    Mark::new(owner).unwrap()
}

pub fn us() -> Mark {
    mark("worker001")
}

pub fn names(targets: &[&str]) -> Vec<String> {
    targets.iter().map(ToString::to_string).collect()
}

pub fn ids(claimed: &[Claimed]) -> Vec<i64> {
    claimed.iter().map(|claimed| claimed.row.id.0).collect()
}

pub fn accept(_: &Found) -> Verdict {
    Verdict::Accept(Origin::Background)
}

pub fn finish(id: i64) -> Finish {
    Finish {
        id: RowId(id),
        finished_s: 22,
        success: true,
        code: Some(0),
        signal: None,
        stdout: String::new(),
        stderr: String::new(),
    }
}

/// Claims what waits for the target, all of it.
pub async fn claim_all(table: &dyn JobTable, target: &str) -> Vec<Claimed> {
    let targets = names(&[target]);
    table.claim(Pick::Waiting { targets: &targets, limit: 10_000 }, &us(), &accept).await.unwrap()
}

pub async fn waiting_rows_are_claimed_lowest_id_first(database: &impl Database) {
    let rows =
        [(5, "low", WAITING), (3, "high", WAITING), (9, "low", WAITING), (4, "other", WAITING)];
    database.add(&rows).await;
    let table = database.table();
    table.check().await.unwrap();
    let targets = names(&["low", "high", "nothing here"]);
    let first = Pick::Waiting { targets: &targets, limit: 2 };
    let claimed = table.claim(first, &us(), &accept).await.unwrap();
    let row = |id, target: &str| Claimed {
        row: Found { id: RowId(id), target: target.to_owned(), status: Status::Waiting },
        verdict: Verdict::Accept(Origin::Background),
    };
    assert_eq!(claimed, [row(3, "high"), row(5, "low")]);
    let claimed = table.claim(first, &us(), &accept).await.unwrap();
    assert_eq!(ids(&claimed), [9]);
    assert_eq!(table.claim(first, &us(), &accept).await.unwrap(), []);
    assert_eq!(database.rows().await[&4], Row::new("other", WAITING));
}

pub async fn a_verdict_changes_status_and_mark_only(database: &impl Database) {
    let rows =
        [(1, "low", WAITING), (2, "low", WAITING), (3, "low", WAITING), (4, "low", "manual")];
    database.add(&rows).await;
    let table = database.table();
    let judge = |found: &Found| match found.id.0 {
        1 => Verdict::Accept(Origin::Background),
        2 => Verdict::Ignore,
        3 => Verdict::Leave,
        _ => Verdict::Accept(Origin::Manual),
    };
    let ids = [4, 3, 2, 1].map(RowId);
    let claimed = table.claim(Pick::Ids(&ids), &us(), &judge).await.unwrap();
    let verdicts: Vec<Verdict> = claimed.iter().map(|claimed| claimed.verdict).collect();
    let expected = [1, 2, 3, 4].map(|id| {
        let status = if id == 4 { Status::Manual } else { Status::Waiting };
        judge(&Found { id: RowId(id), target: String::new(), status })
    });
    assert_eq!(verdicts, expected);
    let marked = |sig: &str| Row { sig: Some(sig.to_owned()), ..Row::new("low", "accepted") };
    let expected = BTreeMap::from([
        (1, marked("#worker001")),
        (2, Row::new("low", "ignored")),
        (3, Row::new("low", WAITING)),
        (4, marked("@worker001")),
    ]);
    assert_eq!(database.rows().await, expected);
}

pub async fn rows_of_other_statuses_and_targets_are_not_found(database: &impl Database) {
    let statuses = ["manual", "accepted", "running", "done", "ignored"];
    let mut rows: Vec<(i64, &str, &str)> =
        (1..).zip(statuses).map(|(id, status)| (id, "low", status)).collect();
    rows.push((6, "unknown", WAITING));
    database.add(&rows).await;
    let before = database.rows().await;
    assert_eq!(claim_all(&*database.table(), "low").await, []);
    assert_eq!(database.rows().await, before);
}

pub async fn rows_are_found_by_id_whatever_their_status(database: &impl Database) {
    let statuses = [WAITING, "manual", "accepted", "running", "done", "ignored"];
    let rows: Vec<(i64, &str, &str)> =
        (1..).zip(statuses).map(|(id, status)| (id, "low", status)).collect();
    database.add(&rows).await;
    let before = database.rows().await;
    let asked: Vec<RowId> = [6, 999, 5, 4, 3, 2, 1, 1].map(RowId).to_vec();
    let leave = |_: &Found| Verdict::Leave;
    let claimed = database.table().claim(Pick::Ids(&asked), &us(), &leave).await.unwrap();
    let found: Vec<(i64, String)> =
        claimed.iter().map(|claimed| (claimed.row.id.0, claimed.row.status.to_string())).collect();
    let expected: Vec<(i64, String)> =
        rows.iter().map(|(id, _, status)| (*id, (*status).to_owned())).collect();
    assert_eq!(found, expected);
    assert_eq!(database.rows().await, before);
    // Nothing to look for is no error either.
    assert_eq!(database.table().claim(Pick::Ids(&[]), &us(), &leave).await.unwrap(), []);
}

pub async fn many_ids_and_targets_are_found_at_once(database: &impl Database) {
    let rows: Vec<(i64, &str, &str)> = (1..=1_300).map(|id| (id, "t7", "manual")).collect();
    database.add(&rows).await;
    let table = database.table();
    let asked: Vec<RowId> = (1..=1_300).rev().map(RowId).collect();
    let manual = |_: &Found| Verdict::Accept(Origin::Manual);
    let claimed = table.claim(Pick::Ids(&asked), &us(), &manual).await.unwrap();
    assert_eq!(ids(&claimed), (1..=1_300).collect::<Vec<i64>>());
    let given_back = table.give_back(&us(), &asked, &[]).await.unwrap();
    assert_eq!(given_back.len(), 1_300);

    database.run("UPDATE jobs SET status = 'waiting'").await;
    let targets: Vec<String> = (0..120).map(|number| format!("t{number}")).collect();
    let pick = Pick::Waiting { targets: &targets, limit: 1_200 };
    let claimed = table.claim(pick, &us(), &accept).await.unwrap();
    assert_eq!(ids(&claimed), (1..=1_200).collect::<Vec<i64>>());
    let finishes: Vec<Finish> = (1..=1_200).map(finish).collect();
    let written = table.write(&us(), &[], 1, &finishes).await.unwrap();
    assert_eq!(written.finished.len(), 1_200);
    let done = database.rows().await.values().filter(|row| row.status == "done").count();
    assert_eq!(done, 1_200);
}

pub async fn a_started_row_runs_and_a_finished_one_is_done(database: &impl Database) {
    let rows: Vec<(i64, &str, &str)> = (1..=5).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    let starts = [1, 2, 3, 4].map(RowId);
    let written = table.write(&us(), &starts, 11, &[]).await.unwrap();
    assert_eq!(written, Written { started: starts.to_vec(), finished: vec![] });
    let running = database.rows().await[&1].clone();
    let expected =
        Row { times: [7, 11, 0], sig: Some("#worker001".to_owned()), ..Row::new("low", "running") };
    assert_eq!(running, expected);

    let ended = [
        Finish { stdout: "out\n".to_owned(), stderr: "err".to_owned(), ..finish(1) },
        Finish { success: false, code: Some(255), ..finish(2) },
        Finish { success: false, code: None, signal: Some("SIGKILL".to_owned()), ..finish(3) },
        finish(4),
    ];
    let written = table.write(&us(), &[RowId(5)], 12, &ended).await.unwrap();
    assert_eq!(written.started, [RowId(5)]);
    assert_eq!(written.finished, starts);
    let done = |result: &str, code, sig: Option<&str>, stdout: &str, stderr: &str| Row {
        times: [7, 11, 22],
        result: Some(result.to_owned()),
        code,
        sig: sig.map(str::to_owned),
        stdout: Some(stdout.to_owned()),
        stderr: Some(stderr.to_owned()),
        ..Row::new("low", "done")
    };
    let rows = database.rows().await;
    assert_eq!(rows[&1], done("ok", Some(0), None, "out\n", "err"));
    assert_eq!(rows[&2], done("fail", Some(255), None, "", ""));
    assert_eq!(rows[&3], done("fail", None, Some("SIGKILL"), "", ""));
    assert_eq!(rows[&4], done("ok", Some(0), None, "", ""));
    assert_eq!((&*rows[&5].status, rows[&5].times), ("running", [7, 12, 0]));
}

pub async fn only_rows_with_the_mark_are_written(database: &impl Database) {
    let rows: Vec<(i64, &str, &str)> = (1..=6).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let table = database.table();
    claim_all(&*table, "low").await;
    // Somebody takes 2 away, deletes 3, gives 4 back by hand.
    database.run("UPDATE jobs SET sig = '#worker002' WHERE id = 2").await;
    database.run("DELETE FROM jobs WHERE id = 3").await;
    database.run("UPDATE jobs SET status = 'waiting' WHERE id = 4").await;
    let before = database.rows().await;
    let starts: Vec<RowId> = (1..=4).map(RowId).collect();
    let written = table.write(&us(), &starts, 11, &[]).await.unwrap();
    assert_eq!(written.started, [RowId(1)]);
    // A start that is written again, because its answer was lost, is still a start.
    let written = table.write(&us(), &starts, 13, &[]).await.unwrap();
    assert_eq!(written.started, [RowId(1)]);
    let ends: Vec<Finish> = (1..=6).map(finish).collect();
    let written = table.write(&us(), &[], 0, &ends).await.unwrap();
    assert_eq!(written.finished, [1, 5, 6].map(RowId));
    let after = database.rows().await;
    for id in [2, 4] {
        assert_eq!(after[&id], before[&id]);
    }
    assert!(!after.contains_key(&3));
    // An end that is written again changes nothing.
    let again = Finish { success: false, code: Some(1), ..finish(1) };
    let written = table.write(&us(), &[RowId(5)], 99, &[again]).await.unwrap();
    assert_eq!(written, Written::default());
    assert_eq!(database.rows().await, after);
}

pub async fn owned_rows_are_told_and_accepted_ones_given_back(database: &impl Database) {
    let rows: Vec<(i64, &str, &str)> = (1..=6).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let table = database.table();
    let judge = |found: &Found| {
        let origin = if found.id.0 % 2 == 0 { Origin::Manual } else { Origin::Background };
        Verdict::Accept(origin)
    };
    let ours: Vec<RowId> = (1..=4).map(RowId).collect();
    table.claim(Pick::Ids(&ours), &us(), &judge).await.unwrap();
    table.claim(Pick::Ids(&[RowId(5)]), &mark("worker002"), &judge).await.unwrap();
    table.write(&us(), &[RowId(3)], 11, &[]).await.unwrap();
    let owned = |id, running, started_s| Owned {
        id: RowId(id),
        target: "low".to_owned(),
        running,
        started_s,
    };
    let expected = [
        owned(1, false, None),
        owned(2, false, None),
        owned(3, true, Some(11)),
        owned(4, false, None),
    ];
    assert_eq!(table.owned(&us()).await.unwrap(), expected);

    let asked: Vec<RowId> = [6, 5, 3, 2, 1].map(RowId).to_vec();
    let given_back = table.give_back(&us(), &asked, &[]).await.unwrap();
    assert_eq!(given_back, [1, 2].map(RowId));
    let rows = database.rows().await;
    assert_eq!(rows[&1], Row::new("low", WAITING));
    assert_eq!(rows[&2], Row::new("low", "manual"));
    assert_eq!(rows[&3].status, "running");
    assert_eq!(rows[&4].sig.as_deref(), Some("@worker001"));
    assert_eq!(rows[&5].sig.as_deref(), Some("#worker002"));
    assert_eq!(rows[&6], Row::new("low", WAITING));
    assert_eq!(table.give_back(&us(), &asked, &[]).await.unwrap(), []);
}

pub async fn a_row_may_start_in_its_claim_and_be_given_back_unstarted(database: &impl Database) {
    let rows: Vec<(i64, &str, &str)> = (1..=5).map(|id| (id, "low", WAITING)).collect();
    database.add(&rows).await;
    let table = database.table();
    let judge = |found: &Found| match found.id.0 {
        1 => Verdict::Start { origin: Origin::Background, started_s: 11 },
        2 => Verdict::Start { origin: Origin::Manual, started_s: 12 },
        3 => Verdict::Start { origin: Origin::Background, started_s: 13 },
        _ => Verdict::Accept(Origin::Background),
    };
    let all: Vec<RowId> = (1..=5).map(RowId).collect();
    let claimed = table.claim(Pick::Ids(&all), &us(), &judge).await.unwrap();
    assert!(claimed.iter().all(|claimed| claimed.verdict == judge(&claimed.row)));
    let row = |status: &str, started_s, sig: &str| Row {
        times: [7, started_s, 0],
        sig: Some(sig.to_owned()),
        ..Row::new("low", status)
    };
    let expected = BTreeMap::from([
        (1, row("running", 11, "#worker001")),
        (2, row("running", 12, "@worker001")),
        (3, row("running", 13, "#worker001")),
        (4, row("accepted", 0, "#worker001")),
        (5, row("accepted", 0, "#worker001")),
    ]);
    assert_eq!(database.rows().await, expected);

    database.run("UPDATE jobs SET sig = '#worker002' WHERE id = 3").await;
    let accepted = [4, 1].map(RowId);
    let unstarted = [5, 3, 2].map(RowId);
    let given_back = table.give_back(&us(), &accepted, &unstarted).await.unwrap();
    assert_eq!(given_back, [2, 4, 5].map(RowId));
    let rows = database.rows().await;
    assert_eq!(rows[&1], expected[&1], "it was not said to be unstarted");
    assert_eq!(rows[&2], Row::new("low", "manual"));
    assert_eq!(rows[&3].sig.as_deref(), Some("#worker002"));
    assert_eq!((&rows[&4], &rows[&5]), (&Row::new("low", WAITING), &Row::new("low", WAITING)));
}

pub async fn columns_of_the_owner_stay_as_they_are(database: &impl Database) {
    database.run("ALTER TABLE jobs ADD COLUMN job_name varchar(40) DEFAULT 'nobody'").await;
    database.add(&[(1, "low", WAITING)]).await;
    database.run("UPDATE jobs SET job_name = 'send mail'").await;
    let table = database.table();
    claim_all(&*table, "low").await;
    table.write(&us(), &[RowId(1)], 11, &[]).await.unwrap();
    table.write(&us(), &[], 0, &[finish(1)]).await.unwrap();
    assert_eq!(database.query("SELECT job_name FROM jobs").await, [[Some("send mail".to_owned())]]);
    assert_eq!(database.rows().await[&1].status, "done");
}
