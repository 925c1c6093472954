//! Lines of JSON. `tracing-subscriber` can write them too, but leaves the texts of fields as they are.

use std::fmt::{self, Debug, Write};

use serde::{Serialize, Serializer, ser::SerializeMap};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::Plain;

/// Writes each event as one object.
pub struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut timestamp = String::new();
        SystemTime.format_time(&mut Writer::new(&mut timestamp))?;
        let (level, target) = (event.metadata().level().as_str(), event.metadata().target());
        let line = Line { timestamp, level, fields: Fields(event), target };
        let line = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{line}")
    }
}

#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'a str,
    fields: Fields<'a>,
    target: &'a str,
}

/// What the event says, the message first.
struct Fields<'a>(&'a Event<'a>);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = FieldMap { map: serializer.serialize_map(None)?, outcome: Ok(()) };
        self.0.record(&mut fields);
        fields.outcome?;
        fields.map.end()
    }
}

/// Numbers stay numbers. All else is text, written as in lines for people.
struct FieldMap<M: SerializeMap> {
    map: M,
    outcome: Result<(), M::Error>,
}

impl<M: SerializeMap> FieldMap<M> {
    fn put(&mut self, field: &Field, value: impl Serialize) {
        if self.outcome.is_ok() {
            self.outcome = self.map.serialize_entry(field.name(), &value);
        }
    }

    fn put_text(&mut self, field: &Field, text: fmt::Arguments<'_>) {
        let mut plain = String::new();
        // Writing into a string cannot fail.
        let _ = Plain::new(&mut plain).write_fmt(text);
        self.put(field, plain);
    }
}

impl<M: SerializeMap> Visit for FieldMap<M> {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put_text(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::{Value, json};

    use super::{super::FIELD_CHARS_MAX, *};

    #[derive(Clone, Default)]
    struct Said(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Said {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            io::Write::write(&mut *self.0.lock().unwrap(), bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The text of the line that this says.
    fn line_of(say: impl FnOnce()) -> String {
        let said = Said::default();
        let writer = said.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
        tracing::subscriber::with_default(subscriber.event_format(JsonLines).finish(), say);
        let text = String::from_utf8(said.0.lock().unwrap().clone()).unwrap();
        let line = text.strip_suffix('\n').expect("a line ends");
        assert!(!line.contains('\n'), "{line:?}");
        line.to_owned()
    }

    #[test]
    fn an_event_is_an_object_with_the_documented_fields_in_order() {
        let line = line_of(|| {
            let error = io::Error::other("no \"disk\"");
            tracing::info!(target: "spindle::x", count = 3, part = 0.5, ok = true, %error, "a {}", 1);
        });
        let (begin, end) = line.split_once(r#"","level":"#).unwrap();
        assert!(begin.starts_with(r#"{"timestamp":"2"#), "{line}");
        assert_eq!(
            end,
            r#""INFO","fields":{"message":"a 1","count":3,"part":0.5,"ok":true,"error":"no \"disk\""},"target":"spindle::x"}"#
        );
    }

    #[test]
    fn names_are_shown_as_in_lines_for_people() {
        let name = "w\u{9b}31m\u{202e}\u{2028}\n\u{1b}[2J\u{e9}";
        let line =
            line_of(|| tracing::info!(worker = name, shown = %name, listed = ?[name], "{name}"));
        assert!(
            !line.chars().any(|char| char.is_control() || super::super::is_mark(char)),
            "{line:?}"
        );
        let line: Value = serde_json::from_str(&line).unwrap();
        let plain = "w\\u{9b}31m\\u{202e}\\u{2028}\\n\\u{1b}[2J\u{e9}";
        let listed = format!("[\"{plain}\"]");
        assert_eq!(
            line["fields"],
            json!({ "message": plain, "worker": plain, "shown": plain, "listed": listed })
        );
    }

    #[test]
    fn a_long_field_is_cut_off() {
        let whole = "x".repeat(FIELD_CHARS_MAX - 1);
        let line = line_of(|| tracing::info!(worker = whole, more = format!("{whole}xy"), "hello"));
        let line: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["fields"]["worker"], whole);
        assert_eq!(line["fields"]["more"], format!("{whole}…"));
    }
}
