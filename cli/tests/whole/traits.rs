//! No trait has more methods than a reader can hold in mind, tests' own traits included.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::house::{CRATES, folder, sources};
use crate::imports::{is_sign, word};

const MOST_METHODS: usize = 12;

#[test]
fn no_trait_has_more_than_12_methods() {
    let mut found = 0;
    for crate_name in CRATES {
        for (path, text) in sources(folder(crate_name)) {
            let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{path}: {error}"));
            for (name, methods) in traits(tokens) {
                assert!(methods <= MOST_METHODS, "{path}: the trait {name} has {methods} methods");
                found += 1;
            }
        }
    }
    assert!(found > 20, "only {found} traits were found");
}

/// Returns the name and the number of methods of each trait.
fn traits(tokens: TokenStream) -> Vec<(String, usize)> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut traits = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            traits.extend(self::traits(group.stream()));
        }
        if word(&tokens[at..]).as_deref() == Some("trait")
            && let Some(name) = word(&tokens[at + 1..])
        {
            traits.push((name, body(&tokens[at..]).map_or(0, methods)));
        }
    }
    traits
}

/// Returns the first group in braces, unless a `;` comes before it.
fn body(tokens: &[TokenTree]) -> Option<TokenStream> {
    tokens.iter().take_while(|token| !is_sign(token, ';')).find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        _ => None,
    })
}

/// Counts the functions that a trait's body declares; functions inside of default bodies are not its methods.
fn methods(body: TokenStream) -> usize {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let named = |pair: &&[TokenTree]| word(pair).as_deref() == Some("fn") && word(&pair[1..]).is_some();
    tokens.windows(2).filter(named).count()
}

#[test]
fn methods_are_counted_with_and_without_a_default_and_in_inner_modules() {
    let sample = "trait Empty {} mod inner { pub(crate) trait Two<T: Send>: Sync where T: Copy { \
                  fn one(&self, call: fn(u8) -> u8); async fn two() { fn helper() {} } const N: usize; } }";
    let found = traits(sample.parse().unwrap());
    assert_eq!(found, [("Empty".to_owned(), 0), ("Two".to_owned(), 2)]);
}
