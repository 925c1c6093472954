//! Lists of all shards as one, a page at a time.
//!
//! Each shard is asked for as many entries as the page is to have, and the answers are merged in the order of
//! the list. The page ends when the entries of a shard that has more are used up, because then the next entry
//! is not known.

use std::cmp::Ordering;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use spindle_http::Problem;

use super::asked::{Asked, Head};
use super::cursor::{At, Cursor, bad_cursor};
use super::flock::written;
use super::place::said;
use super::router::{Outcome, Routing, json, queue_in};
use super::shards::{Missed, Refusal};
use super::sums::{add, raise};
use crate::{Placement, Shard};

/// Which list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Jobs,
    Export,
    Batches,
    Audit,
    Queues,
    Schedules,
    Workers,
}

/// Joins the lists of all shards; a list that is about one shard only is answered by that shard.
pub(super) async fn list(routing: &Routing, kind: Kind, asked: Asked) -> Outcome {
    if let Some(shard) = only(&asked.head, kind, &routing.placement) {
        return routing.pass(asked, shard).await;
    }
    let head = &asked.head;
    match kind {
        Kind::Workers => one_behind_the_other(routing, head).await,
        Kind::Queues | Kind::Schedules => by_name(routing, head, kind).await,
        Kind::Jobs | Kind::Export | Kind::Batches | Kind::Audit => {
            by_time(routing, head, kind).await
        }
    }
}

/// The only shard that a list can be about, if its filter says so.
fn only(head: &Head, kind: Kind, placement: &Placement) -> Option<Shard> {
    let text = |name| {
        let value = head.params(name).next();
        value.map(|value| String::from_utf8_lossy(&value).into_owned())
    };
    let queue = queue_in(head);
    match kind {
        Kind::Jobs => {
            let (batch, ids) = (text("batch"), text("ids"));
            shard_of_jobs(placement, queue.as_deref(), batch.as_deref(), ids.as_deref())
        }
        Kind::Audit => shard_of_jobs(placement, queue.as_deref(), None, text("job").as_deref()),
        _ => None,
    }
}

/// The only shard that can have the jobs of a filter.
pub(super) fn shard_of_jobs(
    placement: &Placement,
    queue: Option<&[u8]>,
    batch: Option<&str>,
    ids: Option<&str>,
) -> Option<Shard> {
    let of_queue = queue.and_then(|queue| placement.only_of(queue));
    let of_number = |text: &str| Some(placement.of_id(text.parse().ok()?));
    let of_batch = || batch.and_then(of_number);
    let of_ids = || {
        let mut shards = ids?.split(',').map(of_number);
        let first = shards.next()??;
        shards.all(|shard| shard == Some(first)).then_some(first)
    };
    of_queue.or_else(of_batch).or_else(of_ids)
}

impl Kind {
    /// The name of the list in its pages.
    fn items(self) -> &'static str {
        match self {
            Kind::Jobs | Kind::Export => "jobs",
            Kind::Batches => "batches",
            Kind::Audit => "entries",
            Kind::Queues => "queues",
            Kind::Schedules => "schedules",
            Kind::Workers => "workers",
        }
    }

    /// The default length of a page, and the longest.
    fn limits(self) -> (usize, usize) {
        match self {
            Kind::Jobs => (50, 1_000),
            Kind::Export => (1_000, 1_000),
            Kind::Audit => (100, 1_000),
            Kind::Batches | Kind::Queues | Kind::Schedules | Kind::Workers => (100, 512),
        }
    }

    /// Whether an entry needs its shard named, to be told from an entry of another shard.
    fn says_shard(self) -> bool {
        self == Kind::Audit
    }

    /// The shard's own cursor before an entry that is not shown yet.
    fn before(self, id: u64, descends: bool) -> u64 {
        match descends {
            // Descending lists go on below a number.
            true => id + 1,
            false => id,
        }
    }
}

/// A page of one shard.
struct Page {
    fields: IndexMap<String, Box<RawValue>>,
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

impl Page {
    fn read(kind: Kind, (shard, bytes): &(Shard, bytes::Bytes)) -> Result<Page, Refusal> {
        let read = || {
            let mut fields: IndexMap<String, Box<RawValue>> = said(bytes)?;
            let items = fields.shift_remove(kind.items())?;
            let items = serde_json::from_str(items.get()).ok()?;
            let next_cursor = match fields.shift_remove("next_cursor") {
                Some(cursor) => Some(serde_json::from_str(cursor.get()).ok()?),
                None => None,
            };
            Some(Page { fields, items, next_cursor })
        };
        read().ok_or_else(|| Missed::BrokeOff(*shard).into())
    }

    fn is_true(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| value.get() == "true")
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(field).and_then(|value| value.get().parse().ok())
    }
}

/// A page to send.
struct Joined(IndexMap<&'static str, Box<RawValue>>);

impl Joined {
    fn new(kind: Kind, items: &[Box<RawValue>]) -> Joined {
        let mut joined = Joined(IndexMap::new());
        joined.put(kind.items(), items);
        joined
    }

    fn put(&mut self, field: &'static str, value: impl serde::Serialize) {
        if let Ok(value) = to_raw_value(&value) {
            self.0.insert(field, value);
        }
    }

    fn put_if_true(&mut self, field: &'static str, is_so: bool) {
        if is_so {
            self.put(field, true);
        }
    }
}

/// The `limit` of a request. An invalid one counts as the default; the shards then refuse it.
fn limit(head: &Head, kind: Kind) -> usize {
    let (usual, most) = kind.limits();
    let given = head.params("limit").next();
    let given = given.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
    given.unwrap_or(usual).clamp(1, most)
}

/// A query with another value of a parameter, or without it.
pub(super) fn with_param(query: &str, name: &str, value: Option<&str>) -> String {
    let is_other = |pair: &&str| {
        let key = form_urlencoded::parse(pair.as_bytes()).next();
        key.is_some_and(|(key, _)| key != name)
    };
    let mut pairs: Vec<String> = query.split('&').filter(is_other).map(str::to_owned).collect();
    if let Some(value) = value {
        pairs.push(
            form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish(),
        );
    }
    pairs.join("&")
}

fn cursor_of(head: &Head) -> Result<Option<String>, Problem> {
    let cursor = head.params("cursor").next();
    cursor.map(|cursor| String::from_utf8(cursor).map_err(|_| bad_cursor())).transpose()
}

/// What a merged list is ordered by.
#[derive(Deserialize)]
struct Dated {
    id: u64,
    #[serde(alias = "created_at", alias = "opened_at")]
    at: String,
}

async fn by_time(routing: &Routing, head: &Head, kind: Kind) -> Outcome {
    let shards: Vec<Shard> = routing.placement.shards().collect();
    let from = match cursor_of(head)? {
        Some(text) => Cursor::read(&text, shards.len())?,
        None => Cursor::begin(shards.len()),
    };
    let descends = match kind {
        Kind::Jobs => head.params("order").next().as_deref() == Some(b"desc"),
        Kind::Export => false,
        _ => true,
    };
    let places: Vec<(Shard, At)> = shards.into_iter().zip(from.0.iter().copied()).collect();
    // All are counted, also those whose list has been shown whole.
    let counts = kind == Kind::Jobs && head.params("count").next().as_deref() == Some(b"true");
    let asked = places.iter().filter(|(_, at)| *at != At::End || counts).map(|(shard, at)| {
        let query = match at {
            At::Begin => with_param(&head.query, "cursor", None),
            At::Number(number) => with_param(&head.query, "cursor", Some(&number.to_string())),
            At::End => with_param(&with_param(&head.query, "cursor", None), "limit", Some("1")),
        };
        routing.read(head, *shard, query)
    });
    let answers = futures_util::future::join_all(asked).await;
    let answers = answers.into_iter().collect::<Result<Vec<_>, Refusal>>()?;
    let (mut lanes, mut totals) = (Vec::new(), Totals::default());
    for answer in &answers {
        let page = Page::read(kind, answer)?;
        totals.add(&page);
        if places.iter().any(|(shard, at)| *shard == answer.0 && *at != At::End) {
            lanes.push(Lane::new(answer.0, page)?);
        }
    }
    let limit = limit(head, kind);
    let items = merged(&mut lanes, limit, kind, descends);
    let cursor = places.iter().map(|(shard, _)| {
        let lane = lanes.iter().find(|lane| lane.shard == *shard);
        lane.map_or(Ok(At::End), |lane| lane.at(kind, descends))
    });
    let cursor = Cursor(cursor.collect::<Result<_, _>>()?);
    let mut joined = Joined::new(kind, &items);
    if !cursor.is_at_end() {
        joined.put("next_cursor", cursor.text());
    }
    if kind == Kind::Jobs {
        joined.put_if_true("partial", items.len() < limit && !cursor.is_at_end());
        if counts {
            joined.put("total", totals.jobs);
            joined.put_if_true("total_is_at_least", totals.is_at_least);
        }
    }
    Ok(json(written(&joined.0)))
}

/// All shards' counts of jobs.
#[derive(Default)]
struct Totals {
    jobs: u64,
    is_at_least: bool,
}

impl Totals {
    fn add(&mut self, page: &Page) {
        self.jobs += page.number("total").unwrap_or(0);
        self.is_at_least |= page.is_true("total_is_at_least");
    }
}

/// One shard's page, and how much of it is taken.
struct Lane {
    shard: Shard,
    page: Page,
    keys: Vec<Dated>,
    taken: usize,
}

impl Lane {
    fn new(shard: Shard, page: Page) -> Result<Lane, Refusal> {
        let keys = page.items.iter().map(|item| serde_json::from_str(item.get()));
        let keys = keys.collect::<Result<_, _>>().map_err(|_| Missed::BrokeOff(shard))?;
        Ok(Lane { shard, page, keys, taken: 0 })
    }

    fn next(&self) -> Option<&Dated> {
        self.keys.get(self.taken)
    }

    /// Where its list goes on.
    fn at(&self, kind: Kind, descends: bool) -> Result<At, Refusal> {
        match (self.next(), &self.page.next_cursor) {
            (Some(next), _) => Ok(At::Number(kind.before(next.id, descends))),
            (None, Some(cursor)) => {
                let number = cursor.parse().map_err(|_| Missed::BrokeOff(self.shard))?;
                Ok(At::Number(number))
            }
            (None, None) => Ok(At::End),
        }
    }
}

fn merged(lanes: &mut [Lane], limit: usize, kind: Kind, descends: bool) -> Vec<Box<RawValue>> {
    let mut items = Vec::new();
    while items.len() < limit {
        if lanes.iter().any(|lane| lane.next().is_none() && lane.page.next_cursor.is_some()) {
            break;
        }
        let order = |one: &Dated, other: &Dated| -> Ordering {
            // Times are written so that they compare as texts.
            let order = (&one.at, one.id).cmp(&(&other.at, other.id));
            if descends { order.reverse() } else { order }
        };
        let heads = lanes.iter_mut().filter(|lane| lane.taken < lane.keys.len());
        let first = heads.min_by(|one, other| match (one.next(), other.next()) {
            (Some(one), Some(other)) => order(one, other),
            _ => Ordering::Equal,
        });
        let Some(lane) = first else { break };
        let item = std::mem::take(&mut lane.page.items[lane.taken]);
        lane.taken += 1;
        items.push(if kind.says_shard() { with_shard(&item, lane.shard) } else { item });
    }
    items
}

/// An object with one field more: the shard that it is from.
pub(super) fn with_shard(object: &RawValue, shard: Shard) -> Box<RawValue> {
    let text = object.get();
    let rest = text.strip_prefix('{').map(str::trim_start).unwrap_or("}");
    let comma = if rest.starts_with('}') { "" } else { "," };
    let text = format!("{{\"shard\":{shard}{comma}{rest}");
    RawValue::from_string(text).unwrap_or_else(|_| object.to_owned())
}

/// The name of a queue or of a schedule.
#[derive(Deserialize)]
struct Named {
    name: Option<String>,
    name_base64: Option<String>,
}

/// Lists in the order of names, which go on behind a name: the cursor is the same for each shard.
async fn by_name(routing: &Routing, head: &Head, kind: Kind) -> Outcome {
    let answers = routing.gather(head, |_| head.query.clone()).await?;
    let mut named = Vec::new();
    let mut is_more = false;
    for answer in &answers {
        let page = Page::read(kind, answer)?;
        is_more |= page.next_cursor.is_some();
        for item in page.items {
            let key = serde_json::from_str(item.get()).map_err(|_| Missed::BrokeOff(answer.0))?;
            let Named { name, name_base64 } = key;
            let name = super::place::queue_of(name.as_deref(), name_base64.as_deref());
            named.push((name.unwrap_or_default(), item));
        }
    }
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    let limit = limit(head, kind);
    // Entries of several shards with one name stay on one page.
    let last = named.get(limit.saturating_sub(1)).map(|(name, _)| name.clone());
    let end = last.map_or(named.len(), |last| named.partition_point(|(name, _)| *name <= last));
    is_more |= end < named.len();
    named.truncate(end);
    let cursor = named.last().filter(|_| is_more).map(|(name, _)| match kind {
        Kind::Queues => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(name)
        }
        _ => String::from_utf8_lossy(name).into_owned(),
    });
    if kind == Kind::Queues {
        named.dedup_by(|(name, item), (first, joined)| {
            let is_same = name == first;
            if is_same {
                *joined = one_queue(joined, item);
            }
            is_same
        });
    }
    let items: Vec<Box<RawValue>> = named.into_iter().map(|(_, item)| item).collect();
    let mut joined = Joined::new(kind, &items);
    if let Some(cursor) = cursor {
        joined.put("next_cursor", cursor);
    }
    Ok(json(written(&joined.0)))
}

/// Joins the answers of two shards about a queue that is moving between them: numbers are added up, everything
/// else is taken from the first.
pub(super) fn one_queue(first: &RawValue, other: &RawValue) -> Box<RawValue> {
    type Fields = serde_json::Map<String, Value>;
    let read = |raw: &RawValue| serde_json::from_str::<Fields>(raw.get()).unwrap_or_default();
    let (mut joined, other) = (read(first), read(other));
    add(&mut joined, &other, &["deleted", "payload_bytes", "waiting_leases"]);
    raise(&mut joined, &other, &["next_ready_age_ms"]);
    for group in ["jobs", "last_minute"] {
        if let (Some(Value::Object(joined)), Some(Value::Object(other))) =
            (joined.get_mut(group), other.get(group))
        {
            let fields: Vec<&str> = other.keys().map(String::as_str).collect();
            add(joined, other, &fields);
        }
    }
    to_raw_value(&joined).unwrap_or_else(|_| first.to_owned())
}

/// Lists without an order: one shard's behind the other's.
async fn one_behind_the_other(routing: &Routing, head: &Head) -> Outcome {
    let kind = Kind::Workers;
    let (mut shard, mut cursor) = match cursor_of(head)? {
        None => (Shard::FIRST, None),
        Some(text) => {
            let read = text.split_once('.').and_then(|(shard, cursor)| {
                let shard = shard.parse().ok().map(Shard).filter(|it| routing.placement.has(*it));
                Some((shard?, Some(cursor.to_owned())))
            });
            read.ok_or_else(bad_cursor)?
        }
    };
    let (mut items, mut is_partial, mut next_cursor) = (Vec::new(), false, None);
    while routing.placement.has(shard) && next_cursor.is_none() {
        let query = with_param(&head.query, "cursor", cursor.take().as_deref());
        let page = Page::read(kind, &routing.read(head, shard, query).await?)?;
        is_partial |= page.is_true("partial");
        items.extend(page.items.iter().map(|item| with_shard(item, shard)));
        next_cursor = page.next_cursor.map(|cursor| format!("{shard}.{cursor}"));
        let Some(next) = shard.0.checked_add(1) else { break };
        shard = Shard(next);
    }
    let mut joined = Joined::new(kind, &items);
    if let Some(cursor) = next_cursor {
        joined.put("next_cursor", cursor);
    }
    joined.put_if_true("partial", is_partial);
    Ok(json(written(&joined.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_replaced_and_the_rest_stays_as_it_is() {
        assert_eq!(with_param("a=%20&cursor=1&b", "cursor", Some("x y")), "a=%20&b&cursor=x+y");
        assert_eq!(with_param("cursor=1", "cursor", None), "");
        assert_eq!(with_param("", "cursor", Some("1")), "cursor=1");
    }

    #[test]
    fn an_object_says_its_shard() {
        let object = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(with_shard(&object(r#"{ "id":1}"#), Shard(2)).get(), r#"{"shard":2,"id":1}"#);
        assert_eq!(with_shard(&object("{}"), Shard(2)).get(), r#"{"shard":2}"#);
    }

    #[test]
    fn two_shards_numbers_of_a_queue_become_one_and_its_settings_stay() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let first = raw(
            r#"{"name":"a","jobs":{"ready":1,"done":0},"payload_bytes":3,"jobs_max":9,"last_minute":{"leased":1},"next_ready_age_ms":5}"#,
        );
        let other = raw(
            r#"{"name":"a","jobs":{"ready":4,"done":2},"payload_bytes":4,"jobs_max":9,"last_minute":{"leased":2},"next_ready_age_ms":3,"deleted":1}"#,
        );
        let joined: Value = serde_json::from_str(one_queue(&first, &other).get()).unwrap();
        let expected = serde_json::json!({
            "name": "a", "jobs": {"ready": 5, "done": 2}, "payload_bytes": 7, "jobs_max": 9,
            "last_minute": {"leased": 3}, "next_ready_age_ms": 5, "deleted": 1,
        });
        assert_eq!(joined, expected);
    }

    fn lane(shard: u8, times: &[(u64, &str)], next_cursor: Option<&str>) -> Lane {
        let item = |(id, at): &(u64, &str)| {
            RawValue::from_string(format!(r#"{{"id":{id},"created_at":"{at}"}}"#)).unwrap()
        };
        let items = times.iter().map(item).collect();
        let next_cursor = next_cursor.map(str::to_owned);
        Lane::new(Shard(shard), Page { fields: IndexMap::new(), items, next_cursor }).unwrap()
    }

    fn ids(items: &[Box<RawValue>]) -> Vec<u64> {
        items.iter().map(|item| serde_json::from_str::<Dated>(item.get()).unwrap().id).collect()
    }

    #[test]
    fn a_page_ends_where_it_is_not_known_what_comes_next() {
        let mut lanes =
            [lane(0, &[(1, "01"), (2, "05")], Some("3")), lane(1, &[(11, "02"), (12, "09")], None)];
        let items = merged(&mut lanes, 10, Kind::Jobs, false);
        // The first shard has more, which may come before 12.
        assert_eq!(ids(&items), [1, 11, 2]);
        let at = lanes.each_ref().map(|lane| lane.at(Kind::Jobs, false).unwrap());
        assert_eq!(at, [At::Number(3), At::Number(12)]);
    }

    #[test]
    fn a_list_that_descends_goes_on_below_what_it_has_shown() {
        let mut lanes = [lane(0, &[(2, "05"), (1, "01")], None), lane(1, &[(12, "09")], None)];
        let items = merged(&mut lanes, 2, Kind::Batches, true);
        assert_eq!(ids(&items), [12, 2]);
        let at = lanes.each_ref().map(|lane| lane.at(Kind::Batches, true).unwrap());
        assert_eq!(at, [At::Number(2), At::End]);
    }
}
