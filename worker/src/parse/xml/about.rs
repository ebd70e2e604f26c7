//! What a feed says about itself: description, pictures, people, categories, and what it is as a podcast.

use std::ops::Range;

use common::document::{FeedPodcast, Funding};
use quick_xml::events::BytesStart;

use super::attribute::{address_of_image, attribute, attributes, some, value};
use super::pass::{Pass, Root, Scope};
use crate::parse::draft::{MAX_MEMBERS, Text};
use crate::parse::vocabulary::{Detail, Element, Word};

impl<'a> Pass<'a, '_> {
    /// Handles an element of the feed itself.
    pub(super) fn meet_about(&mut self, word: Word, tag: &BytesStart<'_>, span: &Range<usize>) -> Scope {
        match word.element {
            Element::Category => match attribute(tag, "term").or_else(|| attribute(tag, "text")) {
                Some(term) => {
                    self.category(term.into());
                    Scope::Feed
                }
                None => self.hold(word, tag, span),
            },
            Element::Summary | Element::Keywords => self.hold(word, tag, span),
            Element::Detail(Detail::Image) => {
                if let Some(href) = address_of_image(tag) {
                    let link = self.link_here(href);
                    self.draft.about.image.offer(1, link);
                }
                Scope::Ignored
            }
            Element::Detail(Detail::Logo) if self.root != Some(Root::Atom) => Scope::Logo,
            Element::Detail(
                Detail::Subtitle
                | Detail::Logo
                | Detail::Icon
                | Detail::Generator
                | Detail::Rights
                | Detail::Guid
                | Detail::Locked
                | Detail::Medium
                | Detail::UpdateFrequency,
            ) => self.hold(word, tag, span),
            Element::Detail(Detail::Funding) => {
                self.attributes = attributes(tag);
                self.hold(word, tag, span)
            }
            _ => Scope::Foreign,
        }
    }

    /// The end of such an element whose text was collected.
    pub(super) fn release_about(&mut self, detail: Detail, rank: u8, text: Text<'a>, written: &[(String, String)]) {
        let plain = some(&text.raw);
        let link = self.link_here(text.raw.clone());
        let about = &mut self.draft.about;
        if plain.is_none() && detail != Detail::Funding {
            return;
        }
        let podcast = &mut about.fields.podcast;
        match detail {
            Detail::Subtitle => {
                about.description.offer(rank, text);
            }
            Detail::Logo => {
                about.image.offer(0, link);
            }
            Detail::Icon => {
                about.icon.offer(0, link);
            }
            Detail::Rights => {
                about.copyright.offer(rank, text);
            }
            Detail::Generator => about.fields.generator = about.fields.generator.take().or(plain),
            Detail::Guid => podcast.get_or_insert_default().guid = plain,
            Detail::Medium => podcast.get_or_insert_default().medium = plain.map(|medium| medium.to_ascii_lowercase()),
            Detail::UpdateFrequency => podcast.get_or_insert_default().update_frequency = plain,
            Detail::Locked => {
                let locked = plain.map(|locked| matches!(locked.to_ascii_lowercase().as_str(), "yes" | "true"));
                podcast.get_or_insert_default().locked = locked;
            }
            Detail::Funding => {
                let FeedPodcast { funding, .. } = podcast.get_or_insert_default();
                if let Some(url) = value(written, "url").filter(|_| funding.len() < MAX_MEMBERS) {
                    funding.push(Funding { url, title: plain });
                }
            }
            _ => {}
        }
    }
}
