//! The two forms in which Prometheus reads numbers, and which of them a client wants.

use axum::http::{HeaderMap, HeaderValue};
use spindle_http::{accept_of, preference};

/// A form of the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exposition {
    /// Prometheus' own text, version 0.0.4: every tool reads it.
    Text,
    /// OpenMetrics 1.0.0, for clients that ask for it.
    OpenMetrics,
}

impl Exposition {
    /// The form that a client's `Accept` prefers: OpenMetrics if it is named and ranks no lower
    /// than text, or if text is not accepted at all. A client that accepts neither gets text, which
    /// people can read.
    pub fn wanted(headers: &HeaderMap) -> Exposition {
        let Some(accept) = accept_of(headers) else { return Exposition::Text };
        let text = preference(&accept, &["text/plain"], Some("0.0.4"));
        let open = preference(&accept, &["application/openmetrics-text"], Some("1.0.0"));
        let no_less = open.weight > 0 && open.weight >= text.weight;
        let asked = no_less && (open.named || text.weight == 0);
        if asked { Exposition::OpenMetrics } else { Exposition::Text }
    }

    /// The value of `Content-Type`.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        })
    }

    /// Numbers in this form, from OpenMetrics.
    pub fn of(self, open_metrics: String) -> String {
        match self {
            Exposition::Text => plain(&open_metrics),
            Exposition::OpenMetrics => open_metrics,
        }
    }
}

/// Text 0.0.4 from OpenMetrics: it knows no units and no end mark, and a counter is described by the
/// name its samples have.
fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // In text 0.0.4 the help line of a metric precedes its type.
    let mut help = None;
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            push(&mut text, &[line]);
            continue;
        };
        let (word, rest) = comment.split_once(' ').unwrap_or((comment, ""));
        let (name, said) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "HELP" => help = Some(said),
            "TYPE" => {
                let suffix = if said == "counter" { "_total" } else { "" };
                if let Some(help) = help.take() {
                    push(&mut text, &["# HELP ", name, suffix, " ", help]);
                }
                push(&mut text, &["# TYPE ", name, suffix, " ", said]);
            }
            _ => {}
        }
    }
    text
}

fn push(text: &mut String, parts: &[&str]) {
    text.extend(parts.iter().copied());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    fn wanted(accept: &str) -> Exposition {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        Exposition::wanted(&headers)
    }

    #[test]
    fn a_client_gets_the_form_it_wants_most() {
        assert_eq!(Exposition::wanted(&HeaderMap::new()), Exposition::Text);
        for accept in [
            "",
            "*/*",
            "text/plain",
            "text/*",
            "text/plain;q=0.5,*/*",
            "text/plain;version=0.0.4;charset=utf-8",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "application/openmetrics-text;q=0.2,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text;q=0,*/*",
            "application/json",
        ] {
            assert_eq!(wanted(accept), Exposition::Text, "{accept}");
        }
        for accept in [
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "text/plain, application/openmetrics-text",
            "application/*",
            // Prometheus 2 and 3.
            "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
             */*;q=0.2",
        ] {
            assert_eq!(wanted(accept), Exposition::OpenMetrics, "{accept}");
        }
    }

    #[test]
    fn plain_text_describes_counters_by_their_samples_and_knows_no_units() {
        let open_metrics = "# HELP a_jobs Jobs.\n# TYPE a_jobs counter\n\
            a_jobs_total{queue=\"# TYPE a counter\\n\"} 1\n\
            # HELP a_log_bytes Bytes.\n# TYPE a_log_bytes gauge\n# UNIT a_log_bytes bytes\n\
            a_log_bytes 7\n# EOF\n";
        let text = "# HELP a_jobs_total Jobs.\n# TYPE a_jobs_total counter\n\
            a_jobs_total{queue=\"# TYPE a counter\\n\"} 1\n\
            # HELP a_log_bytes Bytes.\n# TYPE a_log_bytes gauge\na_log_bytes 7\n";
        assert_eq!(Exposition::Text.of(open_metrics.to_owned()), text);
        assert_eq!(Exposition::OpenMetrics.of(open_metrics.to_owned()), open_metrics);
    }
}
