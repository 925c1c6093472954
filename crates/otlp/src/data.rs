//! Spans in the words of the OpenTelemetry library.

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use spindle_engine::spans::{self, Span, Value};

/// A span as the library exports it.
pub fn data_of(span: Span) -> SpanData {
    let Span { name, kind, own, parent, began, ended, attributes, failed } = span;
    let context = SpanContext::new(
        TraceId::from(own.trace()),
        SpanId::from(own.span),
        TraceFlags::new(own.flags as u8),
        false,
        TraceState::NONE,
    );
    SpanData {
        span_context: context,
        parent_span_id: parent.map_or(SpanId::INVALID, SpanId::from),
        // The request's parent is the client's; the others are spans of this server.
        parent_span_is_remote: kind == spans::SpanKind::Server && parent.is_some(),
        span_kind: match kind {
            spans::SpanKind::Server => SpanKind::Server,
            spans::SpanKind::Producer => SpanKind::Producer,
            spans::SpanKind::Consumer => SpanKind::Consumer,
        },
        name: name.into(),
        start_time: began,
        end_time: ended,
        attributes: attributes.into_iter().map(|(name, value)| attribute(name, value)).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: failed.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("spindle").build(),
    }
}

fn attribute(name: &'static str, value: Value) -> KeyValue {
    match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
    }
}
