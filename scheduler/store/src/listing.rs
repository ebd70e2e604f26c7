//! How a list of feeds is found in a store of millions: which index leads, and how far it is followed.
//!
//! A call looks at a bounded number of feeds ([`MOST`]), whatever the filters. There are four ways:
//! - *sorted*: the filter with the fewest feeds (there are counters) leaves at most [`MOST`]: they are all looked at and put in
//!   order;
//! - *found*: an index of texts knows all of at most [`MOST`] feeds that have the searched text: these are sorted;
//! - *next*: of several hosts, and of feeds with a label or a caller's id, the next [`MOST`] by number are read from the index of
//!   each, and put in order;
//! - *walk*: an index has the feeds of one filter in the list's order; they are looked at from the cursor on, and the
//!   other filters are applied to each. A page ends after [`MOST`] feeds were looked at, even with fewer feeds than
//!   requested, or none: its cursor continues from there.
//!
//! No index has due times. Where the filters leave more than [`MOST`] feeds only those are listed here that are never
//! due; the caller walks the schedule for the others ([`among`], `crate::upcoming`).
//!
//! Both databases run the same statements but for a few words ([`Dialect`]).

use common::feed::Feed;
use common::outcome::FailureKind;
use common::policy::{Category, Status};

use super::counts::Counts;
use super::cursor::{self, Position};
use super::lead::{Lead, name_index, on_hosts};
use super::marked::{Marked, marked, one_of};
use super::row::{FeedRow, category_order, never, readable};
use super::source::{Dialect, MOST, Source};
use super::statement::{Statement, Value};
use super::stretch::{Column, Order, Stretch};
use super::{FeedQuery, FeedSort, Page, StoreError};

/// The same of feeds by number, which are stored beside each other.
const MOST_IN_A_ROW: u32 = 4_000;
/// Places all over the table, and feeds at each, whose texts show how frequent a text is.
const SAMPLES: u64 = 8;
const SAMPLED: u32 = 250;

/// Feeds by due time have the value that this returns ([`FeedRow::due_order`]).
fn due() -> String {
    let idle = idle().map(|status| format!("WHEN '{}' THEN {} ", status.as_str(), never(status)));
    let idle = idle.collect::<String>();
    format!("CASE status {idle}ELSE CASE WHEN wake_at < next_due THEN wake_at ELSE next_due END END")
}

/// Feeds by category have the value that this gives ([`FeedRow::category_order`]).
fn category() -> String {
    let places = Category::ALL.map(|category| format!("WHEN '{category}' THEN {} ", category_order(category)));
    format!("CASE category {}ELSE 0 END", places.concat())
}

/// What is not polled.
fn idle() -> impl Iterator<Item = Status> {
    Status::ALL.into_iter().filter(|status| *status != Status::Active)
}

/// The filters of a query that may lead, with the number of feeds that each leaves; the fewest first.
async fn leads(source: &mut impl Source, query: &FeedQuery, counts: &Counts) -> Result<Vec<(Lead, u64)>, StoreError> {
    let mut leads = vec![(Lead::All, counts.of_classes(|_, _| true))];
    if !query.hosts.is_empty() {
        let mut feeds = 0;
        for host in &query.hosts {
            feeds += source.of_host(host.as_str()).await?;
        }
        leads.push((if query.hosts.len() == 1 { Lead::Host } else { Lead::Hosts }, feeds));
    }
    if let Some(wanted) = query.category {
        leads.push((Lead::Category, counts.of_classes(|category, _| category == wanted)));
    }
    if let Some(wanted) = query.status.filter(|status| *status != Status::Active) {
        leads.push((Lead::Status, counts.of_classes(|_, status| status == wanted)));
    }
    match query.failure {
        Some(kind) if query.penalised => leads.push((Lead::Penalty, counts.of_penalty(Some(kind)))),
        Some(kind) => leads.push((Lead::Failure, counts.of_failure(kind))),
        None if query.penalised => leads.push((Lead::Penalised, counts.of_penalty(None))),
        None => {}
    }
    if query.failing {
        leads.push((Lead::Failing, counts.of_failures()));
    }
    leads.sort_by_key(|(_, feeds)| *feeds);
    Ok(leads)
}

/// A page of feeds. [`StoreError::NotSorted`]: it is up to the schedule.
pub(super) async fn list(source: &mut impl Source, query: &FeedQuery) -> Result<Page<Feed>, StoreError> {
    let after = cursor::position(query)?;
    let counts = source.counts().await?;
    let leads = leads(source, query, &counts).await?;
    // The last one is not a filter.
    let feeds = leads.last().map_or(0, |(_, feeds)| *feeds);
    let fewest = leads.first().copied().filter(|(_, feeds)| *feeds <= u64::from(MOST));
    if let Some((lead, _)) = fewest {
        return sorted(source, query, after, Set::Of(lead)).await;
    }
    match marked(source, query, after).await? {
        Marked::All(ids) => return sorted(source, query, after, Set::Ids(ids)).await,
        Marked::Some(ids) => return in_order(source, query, ids).await,
        Marked::Many => {}
    }
    if let Some(ids) = with_text(source, query, feeds).await? {
        return sorted(source, query, after, Set::Ids(ids)).await;
    }
    match query.sort {
        FeedSort::NextDue => return never_due(source, query, after, &counts).await,
        FeedSort::Category => return by_category(source, query, after, (&leads, &counts)).await,
        FeedSort::Id if query.hosts.len() <= MOST_MERGED && is_led_by_hosts(&leads) => {
            let ids = on_several_hosts(source, query, after).await?;
            return in_order(source, query, ids).await;
        }
        FeedSort::Id | FeedSort::Subscribers | FeedSort::LastPolled => {}
    }
    let ordered = leads.iter().find_map(|(lead, _)| Some((*lead, lead.index(query.sort)?)));
    let walked = walk(source, query, after, ordered.unwrap_or((Lead::All, ""))).await?;
    Ok(cursor::page(query, walked.rows, walked.next))
}

/// A page of these feeds, at most [`MOST`] and by number; if they are as many, there may be more behind them.
async fn in_order(source: &mut impl Source, query: &FeedQuery, ids: Vec<i64>) -> Result<Page<Feed>, StoreError> {
    let last = ids.last().copied().filter(|_| ids.len() == MOST as usize);
    let page = sorted(source, query, None, Set::Ids(ids)).await?;
    let looked_at = last.map(|id| Position::new(query, 0, id).cursor());
    Ok(Page { next: page.next.or(looked_at), ..page })
}

/// A page of more hosts than this follows the order of all feeds instead of merging each host's.
const MOST_MERGED: usize = 8;

/// Returns whether, of the filters whose feeds can be read by number, the one with several hosts leaves the fewest feeds.
fn is_led_by_hosts(leads: &[(Lead, u64)]) -> bool {
    let mut by_number =
        leads.iter().filter(|(lead, _)| matches!(lead, Lead::Hosts) || lead.index(FeedSort::Id).is_some());
    matches!(by_number.next(), Some((Lead::Hosts, _)))
}

/// The next feeds on the query's hosts, by number, at most [`MOST`]. The index has those of one host in this order.
async fn on_several_hosts(
    source: &mut impl Source,
    query: &FeedQuery,
    after: Option<Position>,
) -> Result<Vec<i64>, StoreError> {
    let stretch = after.map_or(Stretch::Whole, Stretch::Behind);
    let index = Lead::Host.index(FeedSort::Id).unwrap_or_default();
    let order = Order { column: None, reversed: query.reversed, lead: Lead::Host, index };
    let mut ids = Vec::new();
    for host in &query.hosts {
        let of_host = FeedQuery { hosts: vec![host.clone()], ..query.clone() };
        let mut sql = Statement::default();
        sql.push("SELECT id FROM feeds");
        stretch.rows(&mut sql, &of_host, source.dialect(), &order);
        sql.int(i64::from(MOST));
        ids.extend(source.numbers(sql).await?);
    }
    ids.sort_unstable();
    if query.reversed {
        ids.reverse();
    }
    ids.truncate(MOST as usize);
    Ok(ids)
}

/// Of these feeds, at most [`MOST`], all that the filters let through, in any order.
pub(super) async fn among(source: &mut impl Source, query: &FeedQuery, ids: Vec<i64>) -> Result<Vec<Feed>, StoreError> {
    let dialect = source.dialect();
    let [before, behind] = dialect.among;
    let mut sql = Statement::default();
    sql.push("SELECT ").push(dialect.columns).push(" FROM feeds WHERE id ");
    sql.push(before).bind(Value::Ints(ids)).push(behind);
    filter(&mut sql, query, dialect);
    Ok(readable(source.rows(sql).await?))
}

/// Feeds that are never due, by status and number: of one status in a call.
async fn never_due(
    source: &mut impl Source,
    query: &FeedQuery,
    after: Option<Position>,
    counts: &Counts,
) -> Result<Page<Feed>, StoreError> {
    let polled = query.status.is_none_or(|status| status == Status::Active);
    let in_schedule = Err(StoreError::NotSorted { most: MOST });
    if !query.reversed && polled && after.is_none_or(|position| position.value < never(Status::Active)) {
        return in_schedule;
    }
    let is_ahead = |value: i64, place: i64| if query.reversed { value >= place } else { value <= place };
    let wanted = |status: &Status| {
        query.status.is_none_or(|wanted| wanted == *status)
            && after.is_none_or(|position| is_ahead(position.value, never(*status)))
            && counts.of_classes(|_, other| other == *status) > 0
    };
    let mut statuses: Vec<Status> = idle().filter(wanted).collect();
    if query.reversed {
        statuses.reverse();
    }
    let Some((status, others)) = statuses.split_first() else {
        // In reverse, what is due comes last.
        return if query.reversed && polled { in_schedule } else { Ok(Page { items: Vec::new(), next: None }) };
    };
    let by_number = FeedQuery { status: Some(*status), sort: FeedSort::Id, ..query.clone() };
    let position = after
        .filter(|position| position.value == never(*status))
        .map(|position| Position::new(&by_number, 0, position.id));
    let index = (Lead::Status, Lead::Status.index(FeedSort::Id).unwrap_or_default());
    let walked = walk(source, &by_number, position, index).await?;
    let next = walked.next.map(|position| Position::new(query, never(*status), position.id));
    let due = (query.reversed && polled).then_some(Status::Active);
    let other = || others.first().copied().or(due).map(|status| Position::new(query, never(status), first_id(query)));
    Ok(cursor::page(query, walked.rows, next.or_else(other)))
}

/// The number before the first feed of an order.
fn first_id(query: &FeedQuery) -> i64 {
    if query.reversed { i64::MAX } else { 0 }
}

/// Feeds by category and number: of each category as many as the page still lacks. With other filters than a category,
/// only one category in a call, because all that is looked at may be let through by none.
async fn by_category(
    source: &mut impl Source,
    query: &FeedQuery,
    after: Option<Position>,
    (leads, counts): (&[(Lead, u64)], &Counts),
) -> Result<Page<Feed>, StoreError> {
    let is_ahead = |value: i64, place: i64| if query.reversed { value >= place } else { value <= place };
    let wanted = |category: &Category| {
        let status = |status| query.status.is_none_or(|wanted| wanted == status);
        query.category.is_none_or(|wanted| wanted == *category)
            && after.is_none_or(|position| is_ahead(position.value, category_order(*category)))
            && counts.of_classes(|other, of| other == *category && status(of)) > 0
    };
    let mut categories: Vec<Category> = Category::ALL.into_iter().filter(wanted).collect();
    if query.reversed {
        categories.reverse();
    }
    let is_plain = FeedQuery { category: None, ..query.clone() }.has_no_filter();
    let mut rows = Vec::new();
    for (number, category) in categories.iter().enumerate() {
        let missing = query.limit.saturating_sub(u32::try_from(rows.len()).unwrap_or(u32::MAX));
        let by_number = FeedQuery { category: Some(*category), sort: FeedSort::Id, limit: missing, ..query.clone() };
        let position = after
            .filter(|position| position.value == category_order(*category))
            .map(|position| Position::new(&by_number, 0, position.id));
        let is_wide = |lead: Lead| lead.index(FeedSort::Id).is_none() || matches!(lead, Lead::All | Lead::Category);
        let narrow = leads.iter().find(|(lead, _)| !is_wide(*lead));
        let in_category = counts.of_classes(|other, _| other == *category);
        let lead = narrow.filter(|(_, feeds)| *feeds < in_category).map_or(Lead::Category, |(lead, _)| *lead);
        let walked = walk(source, &by_number, position, (lead, lead.index(FeedSort::Id).unwrap_or_default())).await?;
        rows.extend(walked.rows);
        let next = walked.next.map(|position| Position::new(query, category_order(*category), position.id));
        let other = categories.get(number + 1);
        let other = other.map(|other| Position::new(query, category_order(*other), first_id(query)));
        if rows.len() > query.limit as usize || next.is_some() || !is_plain {
            return Ok(cursor::page(query, rows, next.or(other)));
        }
    }
    Ok(cursor::page(query, rows, None))
}

/// The numbers of all feeds with the query's text, and perhaps of some others; `None` when they are more than [`MOST`], or
/// when the index would take long.
async fn with_text(source: &mut impl Source, query: &FeedQuery, feeds: u64) -> Result<Option<Vec<i64>>, StoreError> {
    let Some(text) = &query.text else { return Ok(None) };
    let Some(trigrams) = source.trigrams(text) else { return Ok(None) };
    let mut sample = Vec::new();
    for part in 0..SAMPLES {
        sample.extend(source.texts(feeds * part / SAMPLES, SAMPLED).await?);
    }
    let Some(trigrams) = trigrams.rare(&sample, feeds, source.dialect().most_places) else { return Ok(None) };
    let ids = source.with_text(text, &trigrams).await?;
    Ok((ids.len() <= MOST as usize).then_some(ids))
}

/// At most [`MOST`] feeds that are looked at all.
enum Set {
    Of(Lead),
    Ids(Vec<i64>),
}

async fn sorted(
    source: &mut impl Source,
    query: &FeedQuery,
    after: Option<Position>,
    set: Set,
) -> Result<Page<Feed>, StoreError> {
    let dialect = source.dialect();
    let mut sql = Statement::default();
    sql.push("SELECT ").push(dialect.columns).push(" FROM feeds");
    match set {
        Set::Of(lead) => {
            name_index(&mut sql, dialect, lead.any_index());
            lead.condition(query, sql.push(" WHERE "));
        }
        Set::Ids(ids) => {
            let [before, behind] = dialect.among;
            sql.push(" WHERE id ").push(before).bind(Value::Ints(ids)).push(behind);
        }
    }
    filter(&mut sql, query, dialect);
    let value = match query.sort {
        FeedSort::Id => "0".to_owned(),
        FeedSort::Subscribers => "-subscribers".to_owned(),
        FeedSort::NextDue => due(),
        FeedSort::Category => category(),
        FeedSort::LastPolled => dialect.last_polled.to_owned(),
    };
    let (behind, direction) = if query.reversed { ("<", " DESC") } else { (">", "") };
    if let Some(position) = after {
        let at = if query.sort == FeedSort::Subscribers { -position.value } else { position.value };
        sql.push(&format!(" AND ({value} {behind} ")).int(at);
        sql.push(&format!(" OR ({value} = ")).int(at);
        sql.push(&format!(" AND id {behind} ")).int(position.id).push("))");
    }
    // Sums, so that no index is in this order: they are sorted, and nothing else is looked at.
    sql.push(&format!(" ORDER BY ({value}) + 0{direction}, id + 0{direction} LIMIT "));
    sql.int(i64::from(query.limit) + 1);
    let rows = source.rows(sql).await?;
    Ok(cursor::page(query, rows, None))
}

/// What a walk found.
struct Walked {
    rows: Vec<FeedRow>,
    /// The position of the last feed that was looked at, if there may be further ones.
    next: Option<Position>,
}

/// Feeds of `lead` in the order of its index, from the cursor on. An order by a value has two stretches behind a cursor: those
/// with the same value, by number, and those with the further ones.
async fn walk(
    source: &mut impl Source,
    query: &FeedQuery,
    after: Option<Position>,
    (lead, index): (Lead, &'static str),
) -> Result<Walked, StoreError> {
    let column = Column::of(query.sort);
    let stretches = match (&column, after) {
        (_, None) => vec![Stretch::Whole],
        (Some(_), Some(position)) => vec![Stretch::Same(position), Stretch::Further(position)],
        (None, Some(position)) => vec![Stretch::Behind(position)],
    };
    let order = Order { column, reversed: query.reversed, lead, index };
    let wanted = query.limit as usize + 1;
    let in_a_row = matches!(lead, Lead::All) && query.sort == FeedSort::Id;
    let most = i64::from(if in_a_row { MOST_IN_A_ROW } else { MOST });
    let mut walked = Walked { rows: Vec::new(), next: None };
    for stretch in stretches {
        let mut sql = Statement::default();
        let dialect = source.dialect();
        sql.push("SELECT ").push(dialect.columns).push(" FROM (SELECT ");
        sql.push(dialect.columns).push(", failure, penalty FROM feeds");
        stretch.rows(&mut sql, query, dialect, &order);
        sql.int(most).push(") AS walked WHERE true");
        filter(&mut sql, query, dialect);
        let missing = wanted - walked.rows.len();
        sql.push(" LIMIT ").int(i64::try_from(missing).unwrap_or(i64::MAX));
        walked.rows.extend(source.rows(sql).await?);
        if walked.rows.len() >= wanted {
            return Ok(walked);
        }
        let mut last = Statement::default();
        let value = order.column.map_or("subscribers", |column| column.name);
        last.push("SELECT ").push(value).push(", id FROM feeds");
        stretch.rows(&mut last, query, dialect, &order);
        last.push("1 OFFSET ").int(most - 1);
        if let Some((value, id)) = source.position(last).await? {
            let value = order.column.map_or(0, |column| value * column.unit);
            walked.next = Some(Position::new(query, value, id));
            return Ok(walked);
        }
    }
    Ok(walked)
}

/// Adds all of the query's conditions, those of a lead as well: they hold anyway.
fn filter(sql: &mut Statement, query: &FeedQuery, dialect: Dialect) {
    if let Some(text) = &query.text {
        let (pattern, [before, after]) = ((dialect.containing)(text), dialect.like);
        sql.push(" AND (url ").push(before).text(&pattern).push(after);
        sql.push(" OR title ").push(before).text(&pattern).push(after).push(")");
    }
    // A feed stays in the penalty box because of its last failure, also while its host throttles.
    let of_failure = if query.penalised { "penalty" } else { "failure" };
    let words = [
        ("category", query.category.map(Category::as_str)),
        ("status", query.status.map(Status::as_str)),
        (of_failure, query.failure.map(FailureKind::as_str)),
    ];
    for (column, word) in words {
        if let Some(word) = word {
            sql.push(&format!(" AND {column} = ")).text(word);
        }
    }
    if !query.hosts.is_empty() {
        on_hosts(sql.push(" AND "), &query.hosts);
    }
    if query.failing {
        sql.push(" AND failure IS NOT NULL");
    }
    if query.penalised {
        sql.push(" AND penalty IS NOT NULL");
    }
    if let Some(id) = &query.external_id {
        sql.push(" AND external_id = ").text(id);
    }
    if let Some(label) = &query.label {
        sql.push(" AND EXISTS (SELECT 1 FROM feed_labels WHERE feed_labels.feed_id = id AND label = ")
            .text(label)
            .push(")");
    }
    if !query.visible.is_empty() {
        sql.push(" AND EXISTS (SELECT 1 FROM feed_labels WHERE feed_labels.feed_id = id AND ");
        one_of(sql, &query.visible).push(")");
    }
}
