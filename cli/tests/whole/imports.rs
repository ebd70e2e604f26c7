//! Imports point one way: between the crates in a declared order, and between the files of a crate without a cycle.
//!
//! Reads the sources: `use` declarations, and every path in the code (macros' arguments included) that begins with
//! `crate`, `self`, `super`, a child module, an imported module or another crate of the workspace. Tests are left out. A file
//! imports the file in which a name is defined: a re-export (`pub use` in a `mod.rs`) counts as the file that it points at, and
//! so does a path through a module's name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The crates, each with the ones that it may import, from the bottom up: root file, name in paths, imports.
const ORDER: [(&str, &str, &[&str]); 7] = [
    ("common/src/lib.rs", "common", &[]),
    ("worker/src/lib.rs", "worker", &["common"]),
    ("load-tests/src/lib.rs", "load_tests", &["common"]),
    ("scheduler/store/src/lib.rs", "store", &["common"]),
    ("scheduler/src/lib.rs", "scheduler", &["common", "store"]),
    ("scheduler/web/src/lib.rs", "web", &["common", "store", "scheduler"]),
    ("cli/src/main.rs", "cli", &["common", "worker", "load_tests", "store", "scheduler", "web"]),
];

fn sources_of(root: &str) -> Sources {
    Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(root))
}

#[test]
fn no_crate_imports_one_above_it() {
    for (root, name, below) in ORDER {
        for (file, crates) in sources_of(root).crates() {
            let known = ORDER.iter().map(|(_, name, _)| *name).filter(|known| *known != name && !below.contains(known));
            let upward: Vec<_> = known.filter(|known| crates.contains(*known)).collect();
            assert!(upward.is_empty(), "{file} of {name} imports from {upward:?}, which {name} may not know");
        }
    }
}

#[test]
fn no_files_of_a_crate_import_each_other_in_a_cycle() {
    for (root, name, _) in ORDER {
        if let Some(cycle) = sources_of(root).cycle() {
            panic!("files of {name} import each other in a cycle:\n{cycle}");
        }
    }
}

/// A module: a file, or a part of one.
struct Module {
    file: String,
    parent: Option<usize>,
    children: HashMap<String, usize>,
    /// What it defines itself.
    items: BTreeSet<String>,
    /// What its `use` declarations name.
    uses: Vec<Use>,
    /// The paths in its code.
    paths: Vec<Vec<String>>,
    /// Every identifier in its code, `use` declarations left out.
    words: BTreeSet<String>,
}

/// One name of a `use` declaration.
struct Use {
    path: Vec<String>,
    /// The name in this module; `*` for all.
    name: String,
    public: bool,
}

/// What a path names.
#[derive(Clone, Copy)]
enum Target {
    Module(usize),
    /// Something that is defined in a module.
    Item(usize),
}

/// A crate's modules; the first is its root.
struct Sources {
    modules: Vec<Module>,
    folder: PathBuf,
}

impl Sources {
    /// Reads a crate from its root file on.
    fn read(root: &Path) -> Self {
        let folder = root.parent().unwrap().to_owned();
        let mut sources = Sources { modules: Vec::new(), folder: folder.clone() };
        sources.read_file(root, &folder, None);
        sources
    }

    fn read_file(&mut self, file: &Path, children: &Path, parent: Option<usize>) -> usize {
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.strip_prefix(&self.folder).unwrap().display().to_string();
        let module = self.add(name, parent);
        self.read_items(module, tokens, children);
        module
    }

    fn add(&mut self, file: String, parent: Option<usize>) -> usize {
        self.modules.push(Module {
            file,
            parent,
            children: HashMap::new(),
            items: BTreeSet::new(),
            uses: Vec::new(),
            paths: Vec::new(),
            words: BTreeSet::new(),
        });
        self.modules.len() - 1
    }

    /// Reads a module's tokens: its declarations here, everything else as words and paths.
    fn read_items(&mut self, module: usize, tokens: TokenStream, folder: &Path) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        let mut public = false;
        while at < tokens.len() {
            if let Some(attribute) = attribute(&tokens[at..]) {
                at += 2;
                if is_for_tests(&attribute) {
                    at += item_length(&tokens[at..]);
                }
                continue;
            }
            match word(&tokens[at..]).as_deref() {
                Some("pub") => public = true,
                Some("use") => {
                    let end = at + tokens[at..].iter().position(|token| is_sign(token, ';')).unwrap();
                    use_tree(&tokens[at + 1..end], &[], public, &mut self.modules[module].uses);
                    (at, public) = (end + 1, false);
                    continue;
                }
                Some("mod") => {
                    let name = word(&tokens[at + 1..]).unwrap();
                    let child = match &tokens[at + 2] {
                        TokenTree::Group(body) => {
                            let child = self.add(self.modules[module].file.clone(), Some(module));
                            self.read_items(child, body.stream(), &folder.join(&name));
                            child
                        }
                        _ => {
                            let beside = folder.join(format!("{name}.rs"));
                            let own = folder.join(&name);
                            let file = if beside.exists() { beside } else { own.join("mod.rs") };
                            self.read_file(&file, &own, Some(module))
                        }
                    };
                    self.modules[module].children.insert(name, child);
                    (at, public) = (at + 3, false);
                    continue;
                }
                Some("struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "fn" | "macro_rules") => {
                    let named =
                        tokens[at + 1..].iter().filter(|token| !is_sign(token, '!')).find_map(|token| match token {
                            TokenTree::Ident(name)
                                if !["fn", "mut", "unsafe", "async"].contains(&name.to_string().as_str()) =>
                            {
                                Some(name.to_string())
                            }
                            _ => None,
                        });
                    self.modules[module].items.extend(named);
                    public = false;
                }
                _ => {}
            }
            if is_sign(&tokens[at], ';')
                || matches!(&tokens[at], TokenTree::Group(g) if g.delimiter() == Delimiter::Brace)
            {
                public = false;
            }
            at += self.read_token(module, &tokens[at..]);
        }
    }

    /// Reads code: its words, its paths, and `use` declarations inside of functions.
    fn read_code(&mut self, module: usize, tokens: &[TokenTree]) {
        let mut at = 0;
        while at < tokens.len() {
            if let Some(attribute) = attribute(&tokens[at..])
                && is_for_tests(&attribute)
            {
                at += 2;
                at += item_length(&tokens[at..]);
                continue;
            }
            if word(&tokens[at..]).as_deref() == Some("use")
                && let Some(length) = tokens[at..].iter().position(|token| is_sign(token, ';'))
            {
                use_tree(&tokens[at + 1..at + length], &[], false, &mut self.modules[module].uses);
                at += length;
                continue;
            }
            at += self.read_token(module, &tokens[at..]);
        }
    }

    /// Reads the word, path or group that these tokens begin with; returns how many tokens that took.
    fn read_token(&mut self, module: usize, tokens: &[TokenTree]) -> usize {
        if let TokenTree::Group(group) = &tokens[0] {
            let inner: Vec<TokenTree> = group.stream().into_iter().collect();
            self.read_code(module, &inner);
        }
        let this = &mut self.modules[module];
        let Some((path, length)) = path(tokens) else {
            this.words.extend(word(tokens));
            return 1;
        };
        this.words.extend(path.iter().cloned());
        this.paths.push(path);
        length
    }

    /// Returns what a path names from inside a module, if that is in this crate. `left` bounds chains of re-exports.
    fn resolve(&self, from: usize, path: &[String], left: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.named(from, name, rest.is_empty(), left)?,
        };
        rest.iter().enumerate().try_fold(start, |target, (at, name)| match target {
            Target::Module(module) if name == "super" => self.modules[module].parent.map(Target::Module),
            Target::Module(module) if name == "self" => Some(Target::Module(module)),
            // What is not found there is made by a macro there.
            Target::Module(module) => {
                self.named(module, name, at + 1 == rest.len(), left).or(Some(Target::Item(module)))
            }
            Target::Item(_) => Some(target),
        })
    }

    /// Returns what a name in a module refers to: an item of that module, a child, or what a `use` declaration there
    /// names. At the end of a path a function that is re-exported comes before the module of the same name.
    fn named(&self, module: usize, name: &str, is_last: bool, left: usize) -> Option<Target> {
        let left = left.checked_sub(1)?;
        let this = &self.modules[module];
        if this.items.contains(name) {
            return Some(Target::Item(module));
        }
        let child = this.children.get(name).map(|child| Target::Module(*child));
        if child.is_some() && !is_last {
            return child;
        }
        let own = this.uses.iter().filter(|found| found.name == name);
        let imported = own.filter_map(|found| self.resolve(module, &found.path, left)).next().or_else(|| {
            let globs = this.uses.iter().filter(|found| found.name == "*");
            globs.filter_map(|glob| self.resolve(module, &glob.path, left)).find_map(|target| match target {
                Target::Module(of) if of != module => self.named(of, name, is_last, left),
                _ => None,
            })
        });
        match imported {
            Some(Target::Item(_)) => imported,
            _ => child.or(imported),
        }
    }

    /// By file, the files that it imports, each with a name that it takes from there.
    fn imports(&self) -> BTreeMap<&str, BTreeMap<&str, String>> {
        const LONGEST_CHAIN: usize = 12;
        let mut imports: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            let used = module.uses.iter().filter(|found| !found.public || module.words.contains(&found.name));
            let globs = module.uses.iter().filter(|found| found.name == "*" && !found.public);
            let taken = used.map(|found| &found.path).chain(globs.map(|glob| &glob.path)).chain(&module.paths);
            let found = imports.entry(&module.file).or_default();
            for path in taken {
                if let Some(Target::Item(of)) = self.resolve(index, path, LONGEST_CHAIN) {
                    let file = self.modules[of].file.as_str();
                    if file != module.file {
                        found.entry(file).or_insert_with(|| path.join("::"));
                    }
                }
            }
        }
        imports
    }

    /// By file, the first words of paths that name nothing of this crate: other crates among them.
    fn crates(&self) -> BTreeMap<&str, BTreeSet<String>> {
        let mut crates: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            let paths = module.uses.iter().map(|found| &found.path).chain(&module.paths);
            let first =
                paths.filter_map(|path| path.first()).filter(|name| self.named(index, name, false, 2).is_none());
            crates.entry(&module.file).or_default().extend(first.cloned());
        }
        crates
    }

    /// Returns a shortest cycle of imports, a line an import.
    fn cycle(&self) -> Option<String> {
        let imports = self.imports();
        let cycles = imports.keys().filter_map(|start| shortest_way_back(&imports, start));
        let cycle = cycles.min_by_key(Vec::len)?;
        let lines = cycle.iter().zip(cycle.iter().cycle().skip(1));
        Some(lines.map(|(from, to)| format!("  {from} imports {} from {to}\n", imports[from][to])).collect())
    }
}

/// Returns the shortest cycle through a file, in the order of the imports.
fn shortest_way_back<'a>(
    imports: &BTreeMap<&'a str, BTreeMap<&'a str, String>>,
    start: &'a str,
) -> Option<Vec<&'a str>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut reached = std::collections::VecDeque::from([start]);
    while let Some(file) = reached.pop_front() {
        for next in imports.get(file).into_iter().flat_map(BTreeMap::keys).copied() {
            if next == start {
                let mut way = vec![file];
                while let Some(earlier) = before.get(way[way.len() - 1]) {
                    way.push(earlier);
                }
                way.reverse();
                return Some(way);
            }
            if next != start && !before.contains_key(next) {
                before.insert(next, file);
                reached.push_back(next);
            }
        }
    }
    None
}

pub(crate) fn word(tokens: &[TokenTree]) -> Option<String> {
    match tokens.first()? {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    }
}

pub(crate) fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == sign)
}

/// Returns the inside of the outer attribute that these tokens begin with.
fn attribute(tokens: &[TokenTree]) -> Option<String> {
    match tokens {
        [sign, TokenTree::Group(group), ..] if is_sign(sign, '#') && group.delimiter() == Delimiter::Bracket => {
            Some(group.stream().to_string())
        }
        _ => None,
    }
}

/// Returns whether what follows is compiled for tests only. The conformance suites are.
fn is_for_tests(attribute: &str) -> bool {
    let condition = attribute.replace(' ', "");
    condition == "test" || condition.starts_with("cfg(") && condition.contains("test")
}

/// Returns how many tokens the item takes that these begin with: up to its `;` or its body, further attributes
/// included.
fn item_length(tokens: &[TokenTree]) -> usize {
    let ends = |token: &TokenTree| {
        is_sign(token, ';') || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    tokens.iter().position(ends).map_or(tokens.len(), |last| last + 1)
}

/// Returns the path of two words or more that these tokens begin with, and how many tokens it takes.
fn path(tokens: &[TokenTree]) -> Option<(Vec<String>, usize)> {
    let mut path = vec![word(tokens)?];
    let mut length = 1;
    while let [one, two, next, ..] = &tokens[length..]
        && is_sign(one, ':')
        && is_sign(two, ':')
        && let TokenTree::Ident(name) = next
    {
        path.push(name.to_string());
        length += 3;
    }
    (path.len() > 1).then_some((path, length))
}

/// Flattens the tree of a `use` declaration.
fn use_tree(tokens: &[TokenTree], before: &[String], public: bool, uses: &mut Vec<Use>) {
    let mut path = before.to_vec();
    let mut renamed = None;
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(name) if name == "as" => {
                renamed = word(&tokens[at + 1..]);
                at += 1;
            }
            TokenTree::Ident(name) => path.push(name.to_string()),
            TokenTree::Punct(sign) if sign.as_char() == '*' => path.push("*".to_owned()),
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in inner.split(|token| is_sign(token, ',')).filter(|part| !part.is_empty()) {
                    use_tree(part, &path, public, uses);
                }
                return;
            }
            _ => {}
        }
        at += 1;
    }
    let Some(last) = path.pop() else { return };
    let name = match last.as_str() {
        "self" => path.last().cloned().unwrap_or_default(),
        "*" => last,
        _ => {
            path.push(last.clone());
            last
        }
    };
    uses.push(Use { path, name: renamed.unwrap_or(name), public });
}

/// Returns a small crate on disk.
fn sample(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn cycle_of(files: &[(&str, &str)]) -> Option<String> {
    let folder = sample(files);
    Sources::read(&folder.path().join("lib.rs")).cycle()
}

#[test]
fn a_planted_cycle_is_found_and_every_import_of_it_named() {
    let mut files = vec![
        ("lib.rs", "pub mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::{self, Beta}; pub struct Alpha; fn f(_: Beta) { b::go() }"),
        ("b.rs", "pub(crate) struct Beta; pub(crate) fn go() { helper::<{ 1 }>(crate::c::WIDTH) }"),
        ("c.rs", "pub(crate) const WIDTH: usize = 2; #[cfg(test)] mod tests { use crate::a::Alpha; }"),
    ];
    assert_eq!(cycle_of(&files), None, "tests may import anything");
    files[3].1 = "pub(crate) const WIDTH: usize = 2; fn f() { println!(\"{}\", super::a::Alpha::new()) }";
    let cycle = cycle_of(&files).unwrap();
    for line in [
        "a.rs imports crate::b::Beta from b.rs",
        "b.rs imports crate::c::WIDTH from c.rs",
        "c.rs imports super::a::Alpha::new from a.rs",
    ] {
        assert!(cycle.contains(line), "{cycle}");
    }
}

#[test]
fn a_re_export_counts_as_the_file_that_it_points_at() {
    let mut files = vec![
        ("lib.rs", "mod policy;"),
        (
            "policy/mod.rs",
            "mod plan; mod decide; pub use decide::decide; pub(crate) use plan::Plan; pub struct Subject;",
        ),
        ("policy/plan.rs", "pub(crate) struct Plan;"),
        ("policy/decide.rs", "use super::{Plan, Subject}; pub fn decide(_: Subject) -> Plan { Plan }"),
    ];
    assert_eq!(cycle_of(&files), None, "mod.rs only passes on what it re-exports");
    files[1].1 = "mod plan; mod decide; pub use decide::decide; pub(crate) use plan::Plan; pub struct Subject; fn f() { decide(Subject) }";
    let cycle = cycle_of(&files).unwrap();
    assert!(cycle.contains("policy/mod.rs imports decide::decide from policy/decide.rs"), "{cycle}");
    assert!(cycle.contains("policy/decide.rs imports super::Subject from policy/mod.rs"), "{cycle}");
    files[1].1 = "mod plan; mod decide; pub use decide::decide; pub(crate) use plan::*; pub struct Subject;";
    files[2].1 = "pub(crate) struct Plan; fn f() { super::decide(1) }";
    assert!(cycle_of(&files).unwrap().contains("policy/plan.rs imports super::decide from policy/decide.rs"));
}

#[test]
fn another_crate_is_seen_in_use_declarations_and_in_paths() {
    let folder = sample(&[
        ("lib.rs", "mod a; mod common;"),
        ("common.rs", "use store::Store; fn f() { scheduler::run::<web::Api>() }"),
        ("a.rs", "use crate::common; fn f() { common::f() }"),
    ]);
    let sources = Sources::read(&folder.path().join("lib.rs"));
    let crates = sources.crates();
    assert_eq!(crates["common.rs"], ["store", "scheduler", "web"].map(str::to_owned).into());
    assert!(!crates["a.rs"].contains("common"), "a module of the same name");
}
