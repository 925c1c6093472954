//! Backups of the log: what there is to copy, and its bytes.
//!
//! The server keeps no state of a backup, so compaction never waits for one. It may drop a segment
//! that a client is copying: the answer is then 410, and the client takes a new list.

use std::ops::Range;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use spindle_core::audit::Action;
use spindle_engine::SegmentReader;
use spindle_http::{Answered, Code, Pass, Problem, work_on_bytes};
use utoipa::ToSchema;

use crate::api::Api;
use crate::byte_range::{Wanted, wanted};
use crate::numbers::digits;
use crate::routes::audit;

/// Bytes read from the disk at once, more than a serving thread reads itself.
const PIECE_BYTES: usize = 256 * 1024;

/// What a backup has to copy, as it is now.
#[derive(Serialize, ToSchema)]
#[schema(as = BackupListing)]
pub(crate) struct Listing {
    /// The version of the segments' format.
    format: u32,
    /// The position of the log's oldest record.
    first: u64,
    /// The position after the newest record: all before it are durable.
    end: u64,
    /// The segments, the oldest first. They follow each other without a gap.
    segments: Vec<Segment>,
}

/// A segment of the log.
#[derive(Serialize, ToSchema)]
#[schema(as = BackupSegment)]
pub(crate) struct Segment {
    /// The position of its first record, and its name.
    first: u64,
    /// The position after its last record.
    next: u64,
    /// How many bytes to copy. The newest segment grows behind them, and nothing before changes.
    bytes: u64,
    /// What these bytes are known by: two copies with the same sum are the same.
    #[schema(example = "658eec670aaf17a2", min_length = 16, max_length = 16)]
    sum: String,
}

/// List what a backup has to copy: the segments of the log, up to the newest durable record.
#[utoipa::path(get, path = "/api/v1/backup", operation_id = "list_backup", tag = "server",
    responses(
        (status = 200, description = "The segments", body = Listing),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(State(api): State<Api>, pass: Pass) -> Answered<Json<Listing>> {
    let engine = api.engine().clone();
    let listed = work_on_bytes(PIECE_BYTES, move || engine.log_segments()).await;
    let listed = listed.ok_or_else(|| Problem::new(Code::NoFiles, why_no_files(&api)))?;
    let readers = listed.map_err(unreadable)?;
    let segments: Vec<Segment> = readers
        .iter()
        .map(|reader| {
            let facts = reader.facts();
            let (first, next) = (facts.first.0, facts.next.0);
            Segment { first, next, bytes: facts.bytes, sum: facts.sum.to_string() }
        })
        .collect();
    let first = segments.first().map_or(0, |segment| segment.first);
    let end = segments.last().map_or(0, |segment| segment.next);
    let detail = format!("records {first} to {end}, {} segments", segments.len());
    audit::note(&api, &pass, Action::Backup, detail).await;
    Ok(Json(Listing { format: spindle_engine::LOG_FORMAT, first, end, segments }))
}

/// The bytes of a segment that the list names, or the one range of them that the header `Range` asks for
/// (RFC 9110; what is no range is ignored).
#[utoipa::path(get, path = "/api/v1/backup/segments/{first}",
    operation_id = "read_backup_segment", tag = "server",
    params(
        ("first" = u64, Path, description = "The segment's `first`")),
    responses(
        (status = 200, description = "All of the segment as it is now",
            body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "The range",
            body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 410, description = "The log holds it no more: take a new list"),
        (status = 416, description = "The range begins behind the segment's end"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn segment(
    State(api): State<Api>,
    Path(first): Path<String>,
    headers: HeaderMap,
) -> Answered<Response> {
    let first = digits::<u64>(&first)
        .ok_or_else(|| Problem::out_of_range("a segment is named by its first position"))?;
    let engine = api.engine().clone();
    let found = work_on_bytes(PIECE_BYTES, move || engine.log_segment(first)).await;
    let reader = found.map_err(unreadable)?.ok_or_else(|| {
        let detail = "no segment begins there, or it was dropped: take a new list";
        Problem::new(Code::SegmentGone, detail)
    })?;
    let len = reader.facts().bytes;
    let (status, range) = match wanted(&headers, len) {
        Wanted::All => (StatusCode::OK, 0..len),
        Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Wanted::Nothing => {
            let detail = format!("the segment has {len} bytes");
            let problem = Problem::new(Code::RangeNotSatisfiable, detail).with("bytes", len);
            let there = [(header::CONTENT_RANGE, format!("bytes */{len}"))];
            return Ok((there, problem).into_response());
        }
    };
    let part = format!("bytes {}-{}/{len}", range.start, range.end - 1);
    let mut answer = (status, Body::from_stream(pieces(reader, range.clone()))).into_response();
    let headers = answer.headers_mut();
    let octets = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, octets);
    headers.insert(header::CONTENT_LENGTH, (range.end - range.start).into());
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status == StatusCode::PARTIAL_CONTENT {
        let part = HeaderValue::try_from(part).expect("digits and signs");
        headers.insert(header::CONTENT_RANGE, part);
    }
    Ok(answer)
}

/// The bytes piece by piece, each read when the one before has gone.
fn pieces(
    reader: SegmentReader,
    range: Range<u64>,
) -> impl stream::Stream<Item = std::io::Result<bytes::Bytes>> {
    stream::unfold((reader, range), |(reader, Range { start, end })| async move {
        if start >= end {
            return None;
        }
        let len = PIECE_BYTES.min(usize::try_from(end - start).unwrap_or(PIECE_BYTES));
        let (read, reader) =
            work_on_bytes(PIECE_BYTES, move || (reader.read(start, len), reader)).await;
        Some((read, (reader, start + len as u64..end)))
    })
}

fn unreadable(error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::Unreadable, error.to_string())
}

fn why_no_files(api: &Api) -> &'static str {
    if api.options().cluster.is_some() {
        "the server shares its log, which is no files of its own: back that up, with spindle backup --log URL BACKUP"
    } else {
        "the server keeps its log in memory only: there is no file"
    }
}
