//! Tables that are not as they should be, and names that are unusual.

use spindle_jobd::table::{TableError, TableKind, TableSettings, open_table};

use crate::conformance::{claim_all, names};
use crate::database::Database;

/// What `check` says about a table it must refuse.
async fn problem(settings: &TableSettings) -> String {
    let table = open_table(settings);
    let error = table.check().await.unwrap_err();
    assert!(matches!(error, TableError::Schema { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&table.describe()), "{text}");
    text
}

pub async fn a_missing_table_is_named(database: &impl Database) {
    let problem = problem(&database.settings_of("nowhere")).await;
    assert!(problem.contains("nowhere"), "{problem}");
    let said = ["doesn't exist", "does not exist", "no such table"];
    assert!(said.iter().any(|said| problem.contains(said)), "{problem}");
}

pub async fn a_missing_column_is_named(database: &impl Database) {
    for (column, expected) in
        [("sig", "text of at least 10 characters"), ("stdout", "text or bytes")]
    {
        database.run(&format!("ALTER TABLE jobs DROP COLUMN {column}")).await;
        let problem = problem(&database.settings_of("jobs")).await;
        let words = format!("has no column '{column}' ({expected} is expected)");
        assert!(problem.contains(&words), "{problem}");
        let command = match database.kind() {
            TableKind::Mysql => "\"jobd schema mysql\"",
            TableKind::Pgsql => "\"jobd schema pgsql\"",
            TableKind::Sqlite => "\"jobd schema sqlite\"",
        };
        assert!(problem.contains(command), "{problem}");
    }
}

pub async fn any_name_of_a_table_is_quoted(database: &impl Database) {
    let strange = r#"a "job`s' ; DROP TABLE jobs; --"#;
    let quoted = match database.kind() {
        TableKind::Mysql => format!("`{}`", strange.replace('`', "``")),
        _ => format!("\"{}\"", strange.replace('"', "\"\"")),
    };
    database.run(&format!("CREATE TABLE {quoted} AS SELECT * FROM jobs")).await;
    if database.kind() == TableKind::Mysql {
        database.run(&format!("ALTER TABLE {quoted} ADD PRIMARY KEY (id)")).await;
    }
    let insert = "(id, target, time_created, time_started, time_finished, status) \
                  VALUES (1, 'low', 1, 0, 0, 'waiting')";
    database.run(&format!("INSERT INTO {quoted} {insert}")).await;
    let table = open_table(&database.settings_of(strange));
    table.check().await.unwrap();
    assert_eq!(claim_all(&*table, "low").await.len(), 1);
    // A target is a value, whatever its letters.
    let odd = names(&["it's \\ \" `%`; --", "{low}", ""]);
    for target in &odd {
        assert_eq!(claim_all(&*table, target).await, []);
    }
    assert_eq!(database.rows().await.len(), 0);
}
