//! Which connections may be open: the limits in total and per address, and which connection gives way above them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio_util::sync::CancellationToken;

use super::limits::{Limits, RESERVED};
use super::watched::Activity;
use crate::visitors::Visitor;

/// The connections that are open.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    last: u64,
    connections: BTreeMap<u64, Connection>,
    addresses: HashMap<Visitor, usize>,
}

#[derive(Debug)]
struct Connection {
    caller: Visitor,
    activity: Arc<Activity>,
    gave_way: CancellationToken,
}

/// A connection that may be open; it leaves when dropped.
#[derive(Debug)]
pub(super) struct Admitted {
    number: u64,
    reserved: bool,
    activity: Arc<Activity>,
    gave_way: CancellationToken,
    admission: Arc<Admission>,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Self {
        Admission { limits, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        common::lock(&self.open)
    }

    /// Admits a connection, if need be in place of one that only waits; `None`: it must be closed.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Admitted> {
        let caller = Visitor::of(address);
        let mut open = self.open();
        if !self.limits.proxies.stands_for_many(address) {
            let of_caller = open.addresses.get(&caller).copied().unwrap_or(0);
            if of_caller >= self.limits.per_address && !open.make_room(Some(caller)) {
                return None;
            }
        }
        if open.connections.len() >= self.limits.connections {
            open.make_room(None);
        }
        // The connection that gave way may itself have exceeded the limit: what counts is how many are open now.
        let others = open.connections.len();
        if others >= self.limits.connections + RESERVED {
            return None;
        }
        let reserved = others >= self.limits.connections;
        let (activity, gave_way) = (Arc::new(Activity::opened()), CancellationToken::new());
        open.last += 1;
        let number = open.last;
        let connection = Connection { caller, activity: Arc::clone(&activity), gave_way: gave_way.clone() };
        open.connections.insert(number, connection);
        *open.addresses.entry(caller).or_default() += 1;
        Some(Admitted { number, reserved, activity, gave_way, admission: Arc::clone(self) })
    }
}

impl Open {
    /// Closes the connection that has waited longest, of this caller or of any; false when all are busy.
    fn make_room(&mut self, of: Option<Visitor>) -> bool {
        let candidates = self.connections.iter().filter(|(_, connection)| of.is_none_or(|of| of == connection.caller));
        let waiting =
            candidates.filter_map(|(number, connection)| Some((connection.activity.waiting_since()?, *number)));
        let Some((_, number)) = waiting.min() else { return false };
        if let Some(connection) = self.remove(number) {
            connection.gave_way.cancel();
        }
        true
    }

    fn remove(&mut self, number: u64) -> Option<Connection> {
        let connection = self.connections.remove(&number)?;
        if let Some(count) = self.addresses.get_mut(&connection.caller) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&connection.caller);
            }
        }
        Some(connection)
    }
}

impl Admitted {
    /// Returns what the connection is doing.
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Returns whether it is one of those beyond the limit, which serve health and metrics only.
    pub(super) fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// Returns when the connection must make room for another one.
    pub(super) async fn gave_way(&self) {
        self.gave_way.cancelled().await;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.open().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::proxies::Proxies;
    use super::*;

    fn admission(connections: usize, per_address: usize) -> Arc<Admission> {
        Arc::new(Admission::new(Limits::new(connections, per_address)))
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    impl Admitted {
        fn busy(self) -> (super::super::watched::Answered, Self) {
            (self.activity().answering(), self)
        }
    }

    fn gave_way(admitted: &Admitted) -> bool {
        admitted.gave_way.is_cancelled()
    }

    #[test]
    fn the_connection_that_waited_longest_gives_way_to_a_new_one() {
        let admission = admission(2, 2);
        let first = admission.admit(address(1)).unwrap();
        let second = admission.admit(address(2)).unwrap();
        let third = admission.admit(address(3)).unwrap();
        assert_eq!((gave_way(&first), gave_way(&second), third.is_reserved()), (true, false, false));
        drop(first);
        assert_eq!(admission.open().connections.len(), 2, "it is counted out once");
    }

    #[test]
    fn busy_connections_stay_and_a_few_more_are_reserved() {
        let admission = admission(2, 100);
        let busy: Vec<_> = (0..2).map(|_| admission.admit(address(1)).unwrap()).collect();
        let answering: Vec<_> = busy.iter().map(|admitted| admitted.activity().answering()).collect();
        let reserved: Vec<_> = (0..RESERVED).map(|_| admission.admit(address(2)).unwrap()).collect();
        assert!(!busy.iter().any(gave_way));
        // Each reserved connection that still waited gave way to the next one.
        assert_eq!(reserved.iter().filter(|admitted| gave_way(admitted)).count(), RESERVED - 1);
        assert!(reserved.iter().all(Admitted::is_reserved), "the limit is exceeded without them");
        drop(reserved);
        let beyond: Vec<_> = (0..RESERVED).map(|_| admission.admit(address(2)).unwrap().busy()).collect();
        assert!(admission.admit(address(3)).is_none(), "all of them are busy");
        drop((answering, beyond));
        assert!(!admission.admit(address(3)).unwrap().is_reserved());
    }

    #[test]
    fn an_address_has_its_share_and_displaces_only_itself() {
        let admission = admission(100, 2);
        let other = admission.admit(address(9)).unwrap();
        let own: Vec<_> = (0..3).map(|_| admission.admit(address(1)).unwrap()).collect();
        assert_eq!(own.iter().map(gave_way).collect::<Vec<_>>(), [true, false, false]);
        assert!(!gave_way(&other));
        let _answering: Vec<_> = own.iter().map(|admitted| admitted.activity().answering()).collect();
        assert!(admission.admit(address(1)).is_none(), "all of its connections are busy");
        assert!(admission.admit(address(2)).is_some());
    }

    #[test]
    fn loopback_and_trusted_proxies_are_limited_in_total_only() {
        let proxies = Proxies::new(&["192.0.2.8/32".parse().unwrap()]);
        let admission = Arc::new(Admission::new(Limits { proxies, ..Limits::new(100, 2) }));
        let count = |address: IpAddr| {
            let admitted: Vec<_> = (0..50).filter_map(|_| Some(admission.admit(address)?.busy())).collect();
            admitted.len()
        };
        assert_eq!(count([127, 0, 0, 1].into()), 50, "a proxy on this machine has all its callers");
        assert_eq!(count(address(8)), 50);
        assert_eq!(count(address(1)), 2);
        let _all: Vec<_> = (0..100).map(|_| admission.admit([127, 0, 0, 1].into()).unwrap().busy()).collect();
        assert!(admission.admit([127, 0, 0, 1].into()).unwrap().is_reserved(), "and all of them the same limit");
    }
}
