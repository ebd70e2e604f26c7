//! The requirements on every store, as tests over `dyn Store`. [`stamp!`] generates a module of them for a backend.
//!
//! Properties of a single backend (files, locks, schema versions) are tested next to that backend.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod completeness;
pub(crate) mod counts;
pub(crate) mod entries;
pub(crate) mod errors;
pub(crate) mod feeds;
pub(crate) mod filters;
pub(crate) mod hosts;
pub(crate) mod hub;
pub(crate) mod labels;
pub(crate) mod life;
pub(crate) mod lists;
pub(crate) mod logins;
pub(crate) mod moves;
pub(crate) mod news;
pub(crate) mod plans;
pub(crate) mod push;
pub(crate) mod quotas;
pub(crate) mod requeues;
pub(crate) mod subscriptions;
pub(crate) mod upgrades;
pub(crate) mod wakes;

use std::time::Duration;

use async_trait::async_trait;
use common::calm::CalmGroup;
use common::config::QuotaConfig;
use common::document::{ContentHash, Document, Onward, Validators};
use common::entry::Entry;
use common::feed::{Feed, OverQuota};
use common::host::HostKey;
use common::known::KnownEntries;
use common::labels::Marks;
use common::outcome::{FailureKind, OutcomeKind};
use common::policy::{
    Audience, Category, Decision, Notice, Notices, Penalty, PollState, Rhythm, Rule, Status, Term, Terms,
};
use common::report::{FetchReport, Outcome};
use common::time::Timestamp;
use common::url::{FeedId, Version};

use super::{
    Added, Applied, Event, EventPage, FeedChange, FeedQuery, FeedRef, FeedSort, Interruption, NewFeed, PAGE_BYTES,
    RelayTurn, Store, StoreError, StoredEntry, Verdict,
};

/// A backend under test, with its data.
#[async_trait]
pub(crate) trait Backend: Send + Sync {
    /// Opens the store, with the data stored through earlier handles.
    async fn open(&self) -> Box<dyn Store>;

    /// Opens the same store with these quotas.
    async fn open_within(&self, quota: QuotaConfig) -> Box<dyn Store>;

    /// Returns a backend of the same kind with separate data.
    fn another(&self) -> Box<dyn Backend>;

    /// Creates the data as the program of this schema version would have left it, with
    /// `upgrades::rows_of_the_first_program`. Returns false if there is no such version.
    async fn is_left_by(&self, version: i64) -> bool;

    /// Has the audit number its next lines from here on.
    async fn number_audit_from(&self, number: i64);

    /// Returns the derived data, read with independent statements.
    async fn audit(&self) -> Audit;
}

/// Counters and search texts, one per line.
pub(crate) struct Audit {
    /// As stored.
    pub(crate) kept: Vec<String>,
    /// As recomputed from the feeds.
    pub(crate) right: Vec<String>,
}

/// Generates the suite's tests for the backend that the expression returns; each test gets its own.
macro_rules! stamp {
    ($backend:expr) => {
        crate::conformance::stamp! { $backend =>
            life {
                a_feed_is_added_polled_and_read_back;
                a_time_is_found_among_batches_that_took_their_numbers_in_another_order;
                what_was_stored_is_there_after_a_reopening;
                a_new_epoch_stays_and_takes_nothing_along;
                two_stores_do_not_interfere;
                the_history_keeps_the_last_twenty_polls_newest_first;
                the_pause_of_the_fleet_is_kept;
                a_price_is_changed_only_by_who_knows_it;
                all_schedulers_sign_with_the_same_keys_and_old_ones_are_deleted;
                numbers_tell_what_is_there;
            }
            feeds {
                a_site_has_its_public_feeds_and_no_more_than_are_wanted;
                adding_a_url_twice_answers_the_same_feed_and_changes_nothing;
                the_same_url_twice_in_one_batch_is_one_feed;
                urls_as_long_as_they_may_be_are_told_apart;
                thousands_of_feeds_are_answered_in_order;
                adding_a_retired_feed_revives_it_for_one_try;
                a_hold_is_kept_without_its_report_and_a_longer_one_stays;
                a_job_goes_on_where_its_feeds_last_fetch_was_interrupted;
                a_fetch_that_waits_puts_off_its_feed_and_the_wakes_that_are_there;
                a_revived_feed_waits_for_the_end_of_its_hold;
                adding_a_paused_feed_leaves_it_paused;
                only_a_change_of_status_raises_the_version;
                many_feeds_are_changed_at_once_and_unknown_ones_left_out;
                a_paused_feed_is_not_polled_and_is_due_as_before_when_it_is_resumed;
                a_retired_feed_that_is_resumed_is_due;
                an_erased_feed_takes_its_entries_along_and_its_number_is_not_given_again;
                forgotten_validators_do_not_come_back_with_a_fetch_under_way;
                an_audience_set_in_mid_fetch_has_the_report_decided_again;
                a_change_that_was_made_from_an_older_state_changes_nothing;
            }
            errors {
                an_error_stays_with_its_feed_and_its_event_until_a_good_poll;
                a_feed_taken_from_a_page_keeps_a_few_of_the_pages_other_feeds;
            }
            lists {
                pages_are_complete_without_duplicates_while_feeds_are_added;
                a_page_is_ordered_as_asked;
                a_list_holds_what_the_filters_let_through;
                a_list_of_the_penalty_box_has_the_feeds_in_it_and_no_others;
                a_cursor_of_another_list_is_refused;
                placements_come_in_pages_of_live_feeds;
                slas_that_cannot_be_kept_are_counted;
            }
            labels {
                labels_and_ids_are_kept_changed_and_found;
                a_change_of_labels_that_was_made_from_others_changes_nothing;
                a_given_title_stays_until_the_feed_has_one;
                adding_known_feeds_uses_up_no_numbers;
            }
            news {
                feeds_that_come_and_go_are_published_once;
                a_removed_feed_is_recognised_by_those_who_had_it;
                changes_are_published_with_their_settings_and_nothing_else_is;
                a_merge_is_published_at_both_feeds;
                thousands_of_added_feeds_are_read_in_pages;
            }
            completeness {
                feeds_that_may_miss_entries_and_silent_ones_are_counted;
                an_overflow_and_a_silence_are_published_with_their_time;
                a_page_of_older_entries_changes_nothing_of_its_feed_but_its_entries;
                an_archive_is_begun_on_the_version_that_was_read;
                a_page_beyond_the_quotas_ends_the_archive_and_closes_no_gap;
            }
            filters {
                entries_and_events_carry_their_feed;
                consumers_get_what_their_filters_let_through;
                a_page_looks_at_so_many_and_goes_on_where_it_ended;
                an_entry_is_found_by_its_numbers_and_its_id;
            }
            quotas {
                beyond_a_day_s_entries_the_newest_are_stored_and_the_rest_is_counted;
                dates_say_which_entries_are_the_newest;
                large_entries_are_limited_by_their_bytes_and_changes_count_too;
                beyond_its_rows_a_feed_loses_the_oldest_with_their_identities;
                rows_that_leave_without_a_new_entry_are_counted;
                feeds_of_one_batch_are_counted_each_on_its_own;
                what_still_stands_in_the_document_stays;
                a_delivery_beside_a_poll_of_its_feed_counts;
                a_delivery_takes_no_identity_of_what_may_stand_in_the_document;
            }
            counts {
                counters_and_texts_are_those_of_a_recount_whatever_happened;
            }
            hosts {
                rules_are_kept_replaced_and_taken_back;
                every_change_of_orders_is_seen_and_nothing_else;
                an_offered_policy_counts_once_unless_a_person_decides;
                schedulers_that_offer_at_once_agree_on_one_policy;
                a_host_that_refuses_us_is_published_once_and_rests_longer_each_time;
                hosts_are_listed_by_the_number_of_their_feeds;
                a_block_is_kept_beside_a_hold_and_lifted_without_it;
                hosts_are_listed_by_name_in_complete_pages;
            }
            logins {
                users_of_one_url_have_feeds_of_their_own;
                a_retired_feed_is_revived_by_its_own_login_alone;
                another_login_is_another_version_without_validators;
                a_feed_with_credentials_stays_at_its_origin;
                logins_of_an_old_key_are_found_and_sealed_anew;
                a_login_that_two_feeds_have_is_sealed_anew_in_both;
            }
            moves {
                a_moved_feed_starts_anew_and_keeps_its_number_audience_and_history;
                a_feed_that_moves_onto_a_known_one_is_merged_into_it;
                a_merged_feed_that_is_erased_takes_its_readers_along;
                a_feed_joins_only_one_with_its_labels_and_no_sum_is_too_large;
                a_feed_that_is_taken_back_waits_for_its_servers_hold;
                what_was_merged_into_an_erased_feed_is_removed_and_can_be_added_again;
                a_feed_that_moves_onto_a_merged_one_is_merged_into_what_that_one_became;
                a_page_that_another_was_merged_into_is_not_erased;
                a_page_whose_feed_was_known_is_erased_unless_a_caller_gave_it_something;
                a_feed_of_another_version_or_a_retired_one_is_not_moved;
                a_feed_that_is_the_same_elsewhere_keeps_what_is_known_of_it_and_can_be_taken_back;
                validators_stay_with_the_url_that_gave_them;
                a_merged_feed_that_is_taken_back_has_its_readers_again;
            }
            apply {
                a_report_of_another_version_changes_nothing;
                of_two_reports_on_one_feed_the_second_is_stale;
                a_report_on_an_unknown_feed_is_stale;
                stale_reports_do_not_stop_the_others_of_their_batch;
                a_row_that_changed_since_its_report_was_decided_is_read_once_more;
                a_refused_row_takes_its_whole_batch_back;
                failures_keep_what_the_last_good_answer_left;
                a_304_replaces_the_validators_and_keeps_the_document;
                a_job_says_what_is_known_of_asking_with_head_first;
                what_a_feed_says_about_its_end_is_kept_until_it_says_otherwise;
                a_new_document_replaces_all_but_a_title_that_it_does_not_repeat;
                one_throttled_feed_holds_its_host_for_an_hour_and_a_second_one_in_full;
                a_used_up_limit_holds_its_host_for_an_hour_whichever_feeds_show_it;
                the_host_that_answered_is_held;
                a_feed_that_is_gone_is_told_and_not_due;
                a_batch_of_hundreds_is_stored;
            }
            wakes {
                a_wake_before_the_fetch_is_answered_by_it;
                a_wake_in_mid_fetch_is_kept;
                a_row_of_wakes_leaves_what_the_model_says;
                a_wake_that_two_clocks_may_see_differently_is_kept;
                a_past_wake_that_the_job_knew_of_is_answered_whatever_the_clocks_say;
                a_wake_ahead_of_the_fetch_is_still_owed;
                a_page_of_older_entries_answers_no_wake;
                a_past_wake_moves_up_to_now;
                a_future_wake_is_brought_forward_and_never_postponed;
                a_wake_never_comes_before_the_end_of_a_hold;
                only_live_feeds_are_woken;
                a_ping_has_a_retired_feed_polled_once;
            }
            upgrades {
                what_any_earlier_program_left_is_brought_up_to_date_and_goes_on;
            }
            requeues {
                a_requeue_wakes_each_feed_once_and_no_faster_than_its_rate;
                a_requeue_goes_on_where_it_was_after_a_reopening;
                steps_taken_at_once_wake_nobody_twice;
                a_cancelled_requeue_wakes_nobody_any_more;
                only_so_many_requeues_run_at_once_and_ended_ones_are_forgotten;
                a_requeue_reaches_what_its_filter_names;
                penalties_are_lifted_only_when_asked_and_holds_never;
            }
            audit {
                changes_are_kept_with_their_outcome_and_read_in_pages;
                changes_are_listed_by_each_column_in_both_directions;
                old_changes_are_deleted_and_no_more_than_so_many_are_kept;
            }
            subscriptions {
                a_subscription_is_kept_changed_and_removed;
                only_the_holder_of_a_lease_makes_progress;
                progress_that_was_made_in_another_epoch_is_not_stored;
                a_subscription_that_is_disabled_is_published_once;
                subscriptions_without_a_token_are_counted_by_the_host_of_their_callback;
            }
            hub {
                a_callback_has_one_subscription_to_a_topic;
                a_subscription_ends_with_its_lease_unless_its_renewal_is_being_confirmed;
                feeds_that_only_the_hub_wants_are_counted_until_somebody_else_adds_them;
                subscriptions_whose_feed_is_gone_or_merged_are_found;
                a_feed_is_released_only_while_nobody_wants_it;
                a_feed_that_others_merge_into_is_not_released;
                subscriptions_that_nobody_may_have_any_more_are_found;
                a_disabled_subscription_is_leased_while_its_subscriber_is_asked;
            }
            push {
                a_feed_has_one_push_subscription_and_leaves_the_one_before;
                a_push_subscription_is_due_once_and_changes_from_its_revision;
                a_feed_says_how_reliable_its_pushes_are;
                feeds_with_and_without_subscriptions_are_found_with_what_they_announce;
                at_a_hub_renewals_go_first_and_a_freed_host_is_due_with_its_next_row;
                a_feed_is_owed_its_own_pace_from_the_fault_until_it_has_it;
                deliveries_that_are_accepted_and_not_counted_are_lost;
                a_feed_is_not_subscribed_while_many_of_its_subscriptions_are_being_left;
                a_push_adds_entries_and_changes_nothing_of_the_polls;
                secrets_are_read_in_pages_and_replaced_once;
            }
            entries {
                an_entry_is_stored_once_however_often_it_comes;
                two_feeds_may_have_entries_of_the_same_id;
                changed_content_is_an_update_with_a_new_number;
                an_entry_without_its_texts_replaces_nothing_and_gets_them_later;
                an_identity_twice_in_a_document_is_one_entry;
                every_part_of_an_entry_comes_back_equal;
                what_is_only_shown_of_an_entry_is_no_update_by_itself;
                thousands_of_long_entries_are_stored_in_order;
                pages_end_at_their_bytes_and_nothing_is_left_out;
                events_of_a_batch_stand_in_its_order_with_entries_in_their_newest_form;
                a_documents_entries_are_numbered_by_their_dates;
                the_newest_entries_come_newest_first;
                numbers_go_on_after_everything_was_deleted;
                one_process_at_a_time_has_the_turn_to_pass_events_on;
                an_entry_that_retention_took_never_comes_back_as_new;
                an_unchanged_entry_that_its_feed_still_has_is_deleted_and_does_not_come_back;
                retention_takes_the_oldest_first_and_tells_how_far_it_went;
            }
        }
    };
    ($backend:expr => $($module:ident { $($test:ident;)+ })+) => {
        $(mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $test() {
                    crate::conformance::$module::$test(&$backend).await;
                }
            )+
        })+
    };
}
pub(crate) use stamp;

/// The allowed clock difference in these tests.
pub(crate) const SKEW: Duration = Duration::from_secs(1);

/// Returns the time `seconds` after the start of the tests' time line.
pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000).after(Duration::from_secs(seconds))
}

pub(crate) fn new_feed(url: &str) -> NewFeed {
    let url: common::url::FeedUrl = url.parse().unwrap();
    NewFeed {
        calm: midnight(2),
        ..NewFeed::of(HostKey::new(&format!("{}:443", url.as_url().host_str().unwrap())), url, Category::D, at(0))
    }
}

pub(crate) async fn add(store: &dyn Store, url: &str) -> FeedId {
    store.add_feeds(&[new_feed(url)], at(0)).await.unwrap()[0].id
}

pub(crate) async fn feed(store: &dyn Store, id: FeedId) -> Feed {
    store.feed(&FeedRef::Id(id)).await.unwrap().expect("the feed exists")
}

pub(crate) fn entry(id: &str, title: &str) -> Entry {
    Entry { id: id.into(), title: Some(title.into()), ..Entry::default() }
}

/// Returns the document that a worker without fingerprints reports for these entries.
fn document(entries: Vec<Entry>) -> Document {
    let mut document = Document {
        title: Some("a title".into()),
        validators: Validators {
            etag: Some("\"1\"".into()),
            last_modified: Some("yesterday".into()),
            for_url: Some("https://cdn.a.org/feed".into()),
        },
        content_hash: Some(ContentHash(u128::MAX - 5)),
        ..Document::default()
    };
    document.keep_news(entries, &KnownEntries::default());
    document
}

pub(crate) fn modified(entries: Vec<Entry>) -> Outcome {
    Outcome::Modified(Box::new(document(entries)))
}

/// Returns a verdict on a fetch of this feed in its current state that started at `at(started)`; due again an hour
/// later.
pub(crate) async fn verdict(store: &dyn Store, id: FeedId, started: u64, outcome: Outcome) -> Verdict {
    let feed = feed(store, id).await;
    verdict_on(&feed, started, outcome)
}

pub(crate) fn verdict_on(feed: &Feed, started: u64, outcome: Outcome) -> Verdict {
    let due = at(started + 3600);
    let mut terms = Terms::default();
    terms.push(Rule::Category, due);
    let state = PollState {
        last_polled: Some(at(started)),
        last_outcome: Some(outcome.kind()),
        rhythm: Rhythm::steady(1.0, 2.0, at(started)),
        ..feed.state
    };
    Verdict {
        report: FetchReport {
            duration: Duration::from_millis(250),
            http_status: Some(200),
            conditional: true,
            wire_bytes: 1000,
            body_bytes: 3000,
            ..FetchReport::of(feed.id, feed.version, feed.host.clone(), at(started), outcome)
        },
        decision: Decision {
            state,
            status: feed.status,
            next_due: Some(due),
            terms,
            host_hold: None,
            notices: common::policy::Notices::default(),
        },
        category: Category::D,
        audience_at: feed.audience_at,
        push: None,
        archive: None,
        seen: Some(Box::new(super::Seen::of(feed))),
    }
}

/// Returns a group of subscribers who want a feed at midnight in Paris.
fn midnight(subscribers: u32) -> Vec<CalmGroup> {
    vec![CalmGroup { zone: "Europe/Paris".parse().unwrap(), subscribers }]
}

/// Applies verdicts at `at(now)`.
pub(crate) async fn apply(store: &dyn Store, verdicts: &[Verdict], now: u64) -> Vec<Applied> {
    store.apply(verdicts, SKEW, at(now)).await.unwrap()
}

/// Applies one verdict on the feed in its current state, for a fetch that started at `at(started)` and is stored at
/// once.
pub(crate) async fn poll(store: &dyn Store, id: FeedId, started: u64, outcome: Outcome) -> Applied {
    let verdict = verdict(store, id, started, outcome).await;
    apply(store, &[verdict], started).await.remove(0)
}

fn not_modified(validators: Validators) -> Outcome {
    Outcome::NotModified { validators }
}

fn failed(failure: FailureKind) -> Outcome {
    Outcome::Failed { failure, detail: "why".into() }
}

/// Returns a 304 that confirms the validators of [`document`].
pub(crate) fn unchanged() -> Outcome {
    not_modified(document(vec![]).validators)
}

pub(crate) fn new_entries(applied: &Applied) -> (u32, u32) {
    match applied {
        Applied::Stored { new_entries, updated_entries, .. } => (*new_entries, *updated_entries),
        Applied::Stale | Applied::Outdated => panic!("the report is stale"),
    }
}

/// Returns every event but those of what people did to feeds, as kind and title of its entry.
pub(crate) async fn published(store: &dyn Store) -> Vec<(String, Option<String>)> {
    let events = store.events(0, 1000).await.unwrap().items;
    let events =
        events.into_iter().filter(|event| !["feed.added", "feed.changed", "feed.removed"].contains(&&*event.kind));
    events.map(|event| (event.kind, event.entry.and_then(|entry| entry.entry.title))).collect()
}
