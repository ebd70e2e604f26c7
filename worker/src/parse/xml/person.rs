//! Persons: elements with a name, an address, or a text that is one or both.

use std::borrow::Cow;

use super::pass::{Pass, Person, Root, Scope};
use common::entry::Author;

use crate::parse::draft::MAX_MEMBERS;
use crate::parse::vocabulary::Element;

impl<'a> Pass<'a, '_> {
    /// Handles the beginning of a person's element.
    pub(super) fn begin_person(&mut self, rank: u8) -> Scope {
        let person = Person { rank, depth: self.depth(), name: None, email: None, uri: None, text: String::new() };
        self.person = Some(person);
        Scope::Person
    }

    /// The element at this depth, which is a person's, ends.
    pub(super) fn end_person(&mut self, depth: usize) {
        let Some(person) = self.person.take_if(|person| person.depth == depth) else { return };
        let own = || name_of_person(&person.text).map(|name| Cow::from(name.to_owned()));
        let email = person.email.clone().map(Cow::into_owned).or_else(|| address_of_person(&person.text));
        let Some(name) = person.name.or_else(own).or(person.email) else { return };
        if self.entry.is_none() {
            let authors = &mut self.draft.about.fields.authors;
            let url = person.uri.clone().map(Cow::into_owned);
            let author = Author { name: name.clone().into_owned(), url, email: email.clone(), avatar: None };
            if let Some(known) = authors.iter_mut().find(|known| known.name == author.name) {
                known.email = known.email.take().or(author.email);
                known.url = known.url.take().or(author.url);
            } else if authors.len() < MAX_MEMBERS {
                authors.push(author);
            }
        }
        let has_address = email.is_some() || person.uri.is_some();
        if has_address && let Some(details) = self.details() {
            let url = person.uri.map(Cow::into_owned);
            let author = Author { name: name.clone().into_owned(), url, email, avatar: None };
            let authors = &mut details.authors;
            if authors.len() < MAX_MEMBERS {
                authors.push((person.rank, author));
            }
        }
        let authors = match &mut self.entry {
            Some((entry, _)) => &mut entry.authors,
            // An RSS channel's people are not the authors of its items.
            None if self.root == Some(Root::Atom) => &mut self.draft.authors,
            None => return,
        };
        authors.add(person.rank, name);
    }

    /// A part of the open person.
    pub(super) fn part_of_person(&mut self, part: Element, text: Cow<'a, str>) {
        let Some(person) = &mut self.person else { return };
        let place = match part {
            Element::Name => &mut person.name,
            Element::Uri => &mut person.uri,
            _ => &mut person.email,
        };
        place.get_or_insert(text);
    }
}

/// `ann@example.org (Ann)`, `Ann (ann@example.org)`, `Ann <ann@example.org>`, or a name.
fn name_of_person(text: &str) -> Option<&str> {
    let text = text.trim();
    let name = match bracketed(text) {
        Some((before, inside)) if inside.contains('@') => before,
        Some((before, inside)) if before.contains('@') && text.ends_with(')') => inside,
        _ => text,
    };
    let name = Some(name.trim().trim_matches('"').trim()).filter(|name| !name.is_empty()).unwrap_or(text);
    (!name.is_empty()).then_some(name)
}

/// Returns the address in a text of the first three of those forms, or the text that is one.
fn address_of_person(text: &str) -> Option<String> {
    let text = text.trim();
    let (before, inside) = bracketed(text).unwrap_or((text, ""));
    let is_address = |address: &&str| address.contains('@') && !address.contains(char::is_whitespace);
    [inside, before].into_iter().map(str::trim).find(is_address).map(str::to_owned)
}

/// Returns the text before brackets at the end of a text, and the text in them.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let round = || text.strip_suffix(')')?.split_once('(');
    let angled = || text.strip_suffix('>')?.split_once('<');
    round().or_else(angled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_named_by_its_name_where_it_has_one() {
        let table = [
            ("ann@example.org (Ann Quay)", Some("Ann Quay")),
            ("Ann Quay <ann@example.org>", Some("Ann Quay")),
            ("\"Ann\" <ann@example.org>", Some("Ann")),
            ("Ann Quay (ann@example.org)", Some("Ann Quay")),
            ("(ann@example.org)", Some("(ann@example.org)")),
            ("Ann (the first)", Some("Ann (the first)")),
            ("<ann@example.org>", Some("<ann@example.org>")),
            ("作者（mail@example.org）", Some("作者（mail@example.org）")),
            ("ann@example.org ()", Some("ann@example.org ()")),
            ("  ", None),
        ];
        for (text, name) in table {
            assert_eq!(name_of_person(text), name, "{text}");
        }
    }

    #[test]
    fn a_persons_address_is_known_in_each_form() {
        let table = [
            ("ann@example.org (Ann Quay)", Some("ann@example.org")),
            ("Ann Quay (ann@example.org)", Some("ann@example.org")),
            ("Ann <ann@example.org>", Some("ann@example.org")),
            (" ann@example.org ", Some("ann@example.org")),
            ("Ann (the first)", None),
            ("Ann @ home", None),
            ("", None),
        ];
        for (text, address) in table {
            assert_eq!(address_of_person(text).as_deref(), address, "{text}");
        }
    }
}
