//! The TLS sessions of servers, with which the next handshake costs a fifth of a full one.
//!
//! rustls' own cache forgets the server that it learned of first, which is as likely as not one that is polled every 15 minutes. This
//! one forgets the server whose session was used or stored the longest time ago, and keeps as many tickets of each as a poll can use.
//! Whether a ticket has expired, rustls decides when it takes one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Mutex;

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Tickets of one server: most servers send two with each handshake, and a handshake uses one.
const TICKETS: usize = 2;

/// The sessions of a limited number of servers.
pub(crate) struct Sessions {
    state: Mutex<State>,
    servers: usize,
}

#[derive(Default)]
struct State {
    servers: HashMap<ServerName<'static>, Server>,
    /// By the number of their last use, the oldest first.
    by_use: BTreeMap<u64, ServerName<'static>>,
    uses: u64,
}

#[derive(Default)]
struct Server {
    last_use: u64,
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    /// The newest one last.
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Sessions {
    /// Remembers nothing yet, and sessions of up to `servers` servers later.
    pub(crate) fn of(servers: usize) -> Self {
        Sessions { state: Mutex::default(), servers }
    }

    /// Changes what is known of a server, and forgets another one if there are too many.
    fn store(&self, name: ServerName<'static>, change: impl FnOnce(&mut Server)) {
        let mut state = common::lock(&self.state);
        change(state.used(name));
        while state.servers.len() > self.servers {
            let Some((_, oldest)) = state.by_use.pop_first() else { break };
            state.servers.remove(&oldest);
        }
    }

    /// Takes something of a server that is known, which counts as a use.
    fn take<T>(&self, name: &ServerName<'static>, take: impl FnOnce(&mut Server) -> Option<T>) -> Option<T> {
        let mut state = common::lock(&self.state);
        state.servers.contains_key(name).then(|| take(state.used(name.clone()))).flatten()
    }
}

impl State {
    /// Returns a server as the one that was used last.
    fn used(&mut self, name: ServerName<'static>) -> &mut Server {
        self.uses += 1;
        let server = self.servers.entry(name.clone()).or_default();
        self.by_use.remove(&server.last_use);
        self.by_use.insert(self.uses, name);
        server.last_use = self.uses;
        server
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.store(name, |server| server.group = Some(group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.take(&name.to_owned(), |server| server.group)
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.store(name, |server| server.tls12 = Some(session));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.take(&name.to_owned(), |server| server.tls12.clone())
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        self.take(name, |server| server.tls12.take());
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.store(name, |server| {
            if server.tickets.len() == TICKETS {
                server.tickets.pop_front();
            }
            server.tickets.push_back(ticket);
        });
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.take(name, |server| server.tickets.pop_back())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> ServerName<'static> {
        ServerName::try_from(format!("host-{number}.example")).unwrap()
    }

    #[test]
    fn the_server_that_was_used_the_longest_time_ago_is_forgotten_first() {
        let sessions = Sessions::of(3);
        for number in 0..3 {
            sessions.set_kx_hint(name(number), NamedGroup::X25519);
        }
        assert_eq!(sessions.kx_hint(&name(0)), Some(NamedGroup::X25519));
        sessions.set_kx_hint(name(1), NamedGroup::secp256r1);
        sessions.set_kx_hint(name(3), NamedGroup::X25519);
        assert_eq!(sessions.kx_hint(&name(2)), None, "the others were used after it");
        assert_eq!(sessions.kx_hint(&name(0)), Some(NamedGroup::X25519));
        assert_eq!(sessions.kx_hint(&name(1)), Some(NamedGroup::secp256r1));
    }

    #[test]
    fn no_more_servers_are_remembered_than_it_was_made_for() {
        let sessions = Sessions::of(10);
        for number in 0..100 {
            sessions.set_kx_hint(name(number), NamedGroup::X25519);
            assert!(sessions.take_tls13_ticket(&name(number)).is_none());
            assert!(sessions.tls12_session(&name(number + 1000)).is_none(), "asking makes nothing known");
        }
        let state = common::lock(&sessions.state);
        assert_eq!((state.servers.len(), state.by_use.len()), (10, 10));
        let none = Sessions::of(0);
        none.set_kx_hint(name(1), NamedGroup::X25519);
        assert_eq!(none.kx_hint(&name(1)), None);
    }
}
