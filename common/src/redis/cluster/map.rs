//! Which master has which slots, from what nodes answer to `CLUSTER NODES`.

use crate::redis::slot::{SLOTS, Slot};

/// The masters of a cluster, and the slots of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map {
    /// Host and port of each master that has slots.
    masters: Vec<String>,
    /// The master of each slot, as an index.
    owners: Vec<Option<u16>>,
}

/// A master as one node describes it.
#[derive(Debug, PartialEq, Eq)]
struct Described {
    address: String,
    /// Of two masters that claim a slot, the one with the higher epoch has it.
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

impl Map {
    /// Combines the answers of several nodes, each with the address that was queried: the highest epoch counts for each
    /// slot, as it does among the nodes themselves, so that it supersedes the answer of a node that was cut off. `None`
    /// if no master has slots.
    pub(super) fn of_answers(answers: &[(String, String)], by_name: bool) -> Option<Self> {
        let mut map = Map { masters: Vec::new(), owners: vec![None; usize::from(SLOTS)] };
        let mut epochs = vec![0_u64; usize::from(SLOTS)];
        let described: Vec<Described> =
            answers.iter().flat_map(|(asked, answer)| described(asked, answer, by_name)).collect();
        // Sorted, so that maps that say the same are equal.
        map.masters = described.iter().map(|master| master.address.clone()).collect();
        map.masters.sort_unstable();
        map.masters.dedup();
        for master in described {
            let index = u16::try_from(map.masters.binary_search(&master.address).ok()?).ok()?;
            for slot in master.slots.iter().flat_map(|(first, last)| *first..=(*last).min(SLOTS - 1)).map(usize::from) {
                if map.owners[slot].is_none() || epochs[slot] < master.epoch {
                    map.owners[slot] = Some(index);
                    epochs[slot] = master.epoch;
                }
            }
        }
        map.owners.iter().any(Option::is_some).then_some(map)
    }

    /// Returns the address of the master that has a slot.
    pub(super) fn owner(&self, slot: Slot) -> Option<&str> {
        let index = self.owners.get(usize::from(slot.0)).copied().flatten()?;
        self.masters.get(usize::from(index)).map(String::as_str)
    }

    /// Returns the addresses of all masters.
    pub(super) fn masters(&self) -> &[String] {
        &self.masters
    }
}

/// Returns the masters with slots that an answer describes: a line each, `ID IP:PORT@BUS,NAME FLAGS MASTER PING PONG EPOCH LINK SLOTS`.
fn described(asked: &str, answer: &str, by_name: bool) -> Vec<Described> {
    let master = |line: &str| {
        let mut words = line.split(' ');
        let (address, flags) = (words.nth(1)?, words.next()?);
        if !flags.split(',').any(|flag| flag == "master") {
            return None;
        }
        let epoch = words.nth(3)?.parse().ok()?;
        // A word in brackets is a slot that is being moved, which the master still has or does not have yet.
        let slots: Vec<(u16, u16)> = words.skip(1).filter_map(range).collect();
        let address = address_of(address, by_name).or_else(|| flags.contains("myself").then(|| asked.to_owned()))?;
        (!slots.is_empty()).then_some(Described { address, epoch, slots })
    };
    answer.lines().filter_map(master).collect()
}

/// Returns the addresses of all nodes that an answer names, replicas included, as a URL has them.
pub(in crate::redis) fn all_addresses(asked: &str, answer: &str, by_name: bool) -> Vec<String> {
    let address = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let (address, flags) = (words.next()?, words.next()?);
        address_of(address, by_name).or_else(|| flags.contains("myself").then(|| asked.to_owned()))
    };
    let in_url = |address: String| match address.rsplit_once(':') {
        Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        _ => address,
    };
    answer.lines().filter_map(address).map(in_url).collect()
}

fn range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// Returns host and port. With TLS the name of the node, if it announces one: its certificate has that name.
fn address_of(text: &str, by_name: bool) -> Option<String> {
    let mut parts = text.split(',');
    let (address, name) = (parts.next()?, parts.next().unwrap_or_default());
    let (host, port) = address.split('@').next()?.rsplit_once(':')?;
    let host = if by_name && !name.is_empty() { name } else { host };
    (!host.is_empty()).then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "\
aaa :7000@17000,one.example myself,master - 0 1 1 connected 0-5460 [93->-bbb]
bbb 10.0.0.2:7000@17000,two.example master - 0 1 2 connected 5461-10922
ccc 10.0.0.3:7000@17000,three.example,shard-id=x master,fail - 0 1 3 connected 10923-16382 16383
ddd 10.0.0.4:7000@17000 slave ccc 0 1 3 connected
eee :0@0 master,noaddr - 0 1 9 disconnected 7
";

    fn owner(map: &Map, slot: u16) -> &str {
        map.owner(Slot(slot)).unwrap_or_default()
    }

    #[test]
    fn masters_and_their_slots_are_read_and_the_highest_epoch_counts() {
        let first = ("10.0.0.1:7000".to_owned(), FIRST.to_owned());
        let map = Map::of_answers(std::slice::from_ref(&first), false).unwrap();
        assert_eq!([0, 5461, 16383].map(|slot| owner(&map, slot)), ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000"]);
        let by_name = Map::of_answers(std::slice::from_ref(&first), true).unwrap();
        assert_eq!([0, 16383].map(|slot| owner(&by_name, slot)), ["one.example:7000", "three.example:7000"]);
        let second = ("::1:7".to_owned(), "ddd ::1:7@8 myself,master - 0 1 4 connected 10923-16383\n".to_owned());
        for answers in [[first.clone(), second.clone()], [second, first]] {
            let map = Map::of_answers(&answers, false).unwrap();
            assert_eq!([7, 10923].map(|slot| owner(&map, slot)), ["10.0.0.1:7000", "::1:7"], "{answers:?}");
        }
    }

    #[test]
    fn all_nodes_are_named_as_a_url_names_them() {
        let second = "ddd ::1:7@8 slave aaa 0 1 4 connected\n";
        let nodes = all_addresses("10.0.0.1:7000", &format!("{FIRST}{second}"), false);
        assert_eq!(nodes, ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000", "10.0.0.4:7000", "[::1]:7"]);
    }

    #[test]
    fn an_answer_without_slots_is_no_map() {
        let answer = ("h:1".to_owned(), "aaa :1@2 myself,master - 0 0 0 connected\n".to_owned());
        assert_eq!(Map::of_answers(&[answer], false), None);
        assert_eq!(Map::of_answers(&[], false), None);
    }
}
