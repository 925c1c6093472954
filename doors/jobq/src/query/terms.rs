//! The terms of a query, and the condition they become.

use rusqlite::types::Value as Bind;
use serde_json::Value;

use crate::json;
use crate::query::functions::TIME_LEFT;
use crate::query::guard::COLUMNS;
use crate::query::keywords::is_keyword;
use crate::query::scan::scan;
use crate::refusal::{Answered, Refusal};

/// Most terms of a query.
pub const TERMS_MAX: usize = 64;

/// A condition jobs must meet. One without terms is met by all.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Query {
    terms: Vec<Term>,
}

#[derive(Clone, PartialEq, Debug)]
struct Term {
    op: &'static str,
    left: Expr,
    right: Expr,
}

#[derive(Clone, PartialEq, Debug)]
enum Expr {
    /// An expression of SQLite that [`scan`] has passed.
    Sql(String),
    /// A value: a number, a text, null.
    Value(Bind),
    /// A list or an object, compared by what it means.
    Json(String),
}

/// A condition, with the values for its `?1`, `?2`, ...
#[derive(Clone, PartialEq, Debug)]
pub struct BoundQuery {
    pub sql: String,
    pub values: Vec<Bind>,
}

/// The operators, and whether each compares for equality.
const OPS: &[&str] =
    &["IS", "IS NOT", "=", "==", "!=", "<>", "<", "<=", ">", ">=", "LIKE", "NOT LIKE", "GLOB"];

impl Query {
    /// Reads a JSON list of `[OP, EXPR, EXPR]`.
    pub fn read(text: &str) -> Answered<Query> {
        let form = || Refusal::query("a query is a list of [OP, EXPR, EXPR]");
        let Ok(Value::Array(listed)) = serde_json::from_str(text) else { return Err(form()) };
        if listed.len() > TERMS_MAX {
            let message = format!("a query has at most {TERMS_MAX} terms");
            return Err(Refusal::query(message));
        }
        let mut terms = Vec::with_capacity(listed.len());
        for term in listed {
            let Value::Array(parts) = term else { return Err(form()) };
            let Ok([op, left, right]) = <[Value; 3]>::try_from(parts) else { return Err(form()) };
            let op = op.as_str().ok_or_else(form)?;
            let words: Vec<&str> = op.split_ascii_whitespace().collect();
            let words = words.join(" ").to_ascii_uppercase();
            let known = OPS.iter().find(|known| **known == words);
            let op = *known.ok_or_else(|| {
                Refusal::query(format!("`{op}` is no operator; there are {}", OPS.join(", ")))
            })?;
            terms.push(Term {
                op,
                left: Expr::read(left, false)?,
                right: Expr::read(right, true)?,
            });
        }
        Ok(Query { terms })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The condition, for behind a WHERE.
    pub fn bound(&self) -> BoundQuery {
        let mut bound = BoundQuery { sql: String::new(), values: Vec::new() };
        for term in &self.terms {
            if !bound.sql.is_empty() {
                bound.sql.push_str(&format!(" AND {TIME_LEFT}() AND "));
            }
            term.write(&mut bound);
        }
        if bound.sql.is_empty() {
            bound.sql.push('1');
        }
        bound
    }
}

impl Expr {
    fn read(value: Value, third: bool) -> Answered<Expr> {
        Ok(match value {
            Value::Null => Expr::Value(Bind::Null),
            Value::Bool(flag) => Expr::Value(Bind::Integer(flag.into())),
            Value::Number(number) => Expr::Value(match number.as_i64() {
                Some(integer) => Bind::Integer(integer),
                None => Bind::Real(number.as_f64().unwrap_or(f64::INFINITY)),
            }),
            Value::String(text) if third && is_literal(&text) => Expr::Value(Bind::Text(text)),
            Value::String(text) => {
                scan(&text).map_err(|error| {
                    Refusal::query(format!("the expression `{text}` is not taken: {error}"))
                })?;
                Expr::Sql(text)
            }
            Value::Array(_) | Value::Object(_) => Expr::Json(json::spaced(&value.to_string())),
        })
    }

    fn write(&self, bound: &mut BoundQuery) {
        let value = match self {
            Expr::Sql(text) => {
                bound.sql.push('(');
                bound.sql.push_str(text);
                bound.sql.push(')');
                return;
            }
            Expr::Value(value) => value.clone(),
            Expr::Json(text) => Bind::Text(text.clone()),
        };
        bound.values.push(value);
        bound.sql.push_str(&format!("?{}", bound.values.len()));
    }
}

/// A bare word that SQLite would take for an unknown name, such as `CREATED` in Jobq's document.
fn is_literal(text: &str) -> bool {
    let mut letters = text.chars();
    let begins = letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    begins
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !COLUMNS.iter().any(|column| column.eq_ignore_ascii_case(text))
        && !is_keyword(text)
}

impl Term {
    fn write(&self, bound: &mut BoundQuery) {
        let is_json = |expr: &Expr| matches!(expr, Expr::Json(_));
        if !is_json(&self.left) && !is_json(&self.right) {
            bound.sql.push('(');
            self.left.write(bound);
            bound.sql.push_str(&format!(" {} ", self.op));
            self.right.write(bound);
            bound.sql.push(')');
            return;
        }
        // Each operator treats NULL as SQL does.
        let (negated, null) = match self.op {
            "IS" => (false, None),
            "IS NOT" => (true, None),
            "=" | "==" => (false, Some(())),
            "!=" | "<>" => (true, Some(())),
            op => {
                bound.sql.push('(');
                self.left.write(bound);
                bound.sql.push_str(&format!(" {op} "));
                self.right.write(bound);
                bound.sql.push(')');
                return;
            }
        };
        bound.sql.push('(');
        if null.is_some() {
            for side in [&self.left, &self.right] {
                if !is_json(side) {
                    side.write(bound);
                    bound.sql.push_str(" IS NOT NULL AND ");
                }
            }
        }
        bound.sql.push_str(if negated { "NOT same_json(" } else { "same_json(" });
        self.left.write(bound);
        bound.sql.push_str(", ");
        self.right.write(bound);
        bound.sql.push_str("))");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, sql: &str, values: &[Bind]) {
        let bound = Query::read(query).unwrap().bound();
        assert_eq!((bound.sql.as_str(), &bound.values[..]), (sql, values));
    }

    #[test]
    fn both_examples_of_the_document_mean_what_they_show() {
        check(
            r#"[["IS", "json_extract(state, '$[0]')", "CREATED"]]"#,
            "((json_extract(state, '$[0]')) IS ?1)",
            &[Bind::Text("CREATED".to_owned())],
        );
        check(r#"[["IS", "j.state", null]]"#, "((j.state) IS ?1)", &[Bind::Null]);
    }

    #[test]
    fn only_a_third_bare_word_that_names_nothing_is_a_literal() {
        check(r#"[["=", "CREATED", "id"]]"#, "((CREATED) = (id))", &[]);
        check(r#"[["=", "state", "NULL"]]"#, "((state) = (NULL))", &[]);
        check(r#"[["=", "state", "j.state"]]"#, "((state) = (j.state))", &[]);
        check(r#"[["=", "state", "true"]]"#, "((state) = (true))", &[]);
        check(r#"[["=", "state", "a b"]]"#, "((state) = (a b))", &[]);
    }

    #[test]
    fn values_are_bound_and_terms_joined() {
        check(
            r#"[[" is  not ", 1, 1.5], ["like", "payload", "'%x%'"], ["<", "id", true]]"#,
            "(?1 IS NOT ?2) AND time_left() AND ((payload) LIKE ('%x%')) AND time_left() \
             AND ((id) < ?3)",
            &[Bind::Integer(1), Bind::Real(1.5), Bind::Integer(1)],
        );
        check("[]", "1", &[]);
        let text = || Bind::Text("[\"A\", 1]".to_owned());
        check(
            r#"[["!=", "state", ["A",1]], ["IS", "state", ["A",1]]]"#,
            "((state) IS NOT NULL AND NOT same_json((state), ?1)) AND time_left() \
             AND (same_json((state), ?2))",
            &[text(), text()],
        );
    }

    #[test]
    fn other_forms_are_refused() {
        for query in [
            "5",
            "\"id = 1\"",
            "[\"id = 1\"]",
            "[[\"true\"]]",
            "[[\"=\",1,2,3]]",
            "{}",
            "[[\"FOO\",\"id\",\"1\"]]",
            "[[\"IN\",\"id\",\"(1)\"]]",
            "[[5,\"id\",\"1\"]]",
            "[[\"=\",\"1) OR (1\",\"1\"]]",
            "[[\"=\",\"id\",\"1; delete from job\"]]",
        ] {
            assert!(Query::read(query).is_err(), "{query}");
        }
        let many = format!("[{}]", vec!["[\"=\",1,1]"; 65].join(","));
        assert!(Query::read(&many).is_err());
    }
}
