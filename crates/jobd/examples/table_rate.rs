//! How many rows a second a job table takes through claim, start and finish, without any process:
//! the upper end of what a worker can reach on it. It needs rows that wait for the target `rate`
//! and makes them `done`.
//!
//! ```text
//! cargo run --release --example table_rate -- sqlite FILE TABLE
//! cargo run --release --example table_rate -- mysql HOST PORT USER DATABASE TABLE
//! cargo run --release --example table_rate -- pgsql HOST PORT USER DATABASE TABLE
//! ```
//!
//! The password is taken from `JOBD_PASSWORD`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use spindle_jobd::table::{
    Finish, Found, JobTable, Mark, Origin, Pick, RowId, SqlServer, TableSettings, Tls, Verdict,
    open_table,
};

/// `mysql_fetch_limit`'s default.
const FETCH_LIMIT: u32 = 100;
/// How many jobs start and end together at a concurrency of 20.
const TOGETHER: usize = 20;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let table = open_table(&settings(&args)?);
    table.check().await?;
    for (what, output_bytes) in [("silent", 0), ("1 KiB of stdout", 1024)] {
        measure(&*table, what, output_bytes).await?;
    }
    Ok(())
}

fn settings(args: &[String]) -> Result<TableSettings> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let server = |host: &str, port: &str, user: &str, database: &str, table: &str| {
        Ok::<_, anyhow::Error>(SqlServer {
            host: host.to_owned(),
            port: port.parse().context("PORT is a number")?,
            user: user.to_owned(),
            password: std::env::var("JOBD_PASSWORD").unwrap_or_default(),
            database: database.to_owned(),
            table: table.to_owned(),
            tls: Tls::default(),
        })
    };
    Ok(match args[..] {
        ["sqlite", file, table] => {
            TableSettings::Sqlite { file: file.into(), table: table.to_owned() }
        }
        ["mysql", host, port, user, database, table] => {
            TableSettings::Mysql(server(host, port, user, database, table)?)
        }
        ["pgsql", host, port, user, database, table] => {
            TableSettings::Pgsql(server(host, port, user, database, table)?)
        }
        _ => bail!("expected sqlite FILE TABLE, or mysql|pgsql HOST PORT USER DATABASE TABLE"),
    })
}

/// Works for at most five seconds, or until nothing waits.
async fn measure(table: &dyn JobTable, what: &str, output_bytes: usize) -> Result<()> {
    let mark = Mark::new("tablerate").context("nine letters")?;
    let targets = ["rate".to_owned()];
    let accept = |_: &Found| Verdict::Accept(Origin::Background);
    let (mut rows, begin) = (0, Instant::now());
    let mut in_claims = Duration::ZERO;
    while begin.elapsed() < Duration::from_secs(5) {
        let pick = Pick::Waiting { targets: &targets, limit: FETCH_LIMIT };
        let claim_begin = Instant::now();
        let claimed = table.claim(pick, &mark, &accept).await?;
        in_claims += claim_begin.elapsed();
        if claimed.is_empty() {
            break;
        }
        let ids: Vec<RowId> = claimed.iter().map(|claimed| claimed.row.id).collect();
        rows += ids.len();
        // A slot that becomes free starts the next job in the write that ends the last.
        let mut ended: &[RowId] = &[];
        for starts in ids.chunks(TOGETHER).chain([&[][..]]) {
            let ends: Vec<Finish> = ended.iter().map(|id| end(*id, output_bytes)).collect();
            table.write(&mark, starts, now_s(), &ends).await?;
            ended = starts;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let claims_ms = in_claims.as_secs_f64() * 1000.0;
    let rate = rows as f64 / seconds;
    println!(
        "{what}: {rows} rows in {seconds:.2} s, {rate:.0} rows/s ({claims_ms:.0} ms in claims)"
    );
    Ok(())
}

fn end(id: RowId, output_bytes: usize) -> Finish {
    Finish {
        id,
        finished_s: now_s(),
        success: true,
        code: Some(0),
        signal: None,
        // Different for each row, as real output is.
        stdout: if output_bytes == 0 { String::new() } else { format!("{id:>output_bytes$}") },
        stderr: String::new(),
    }
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
