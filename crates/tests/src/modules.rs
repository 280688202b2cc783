//! Which module of a crate uses which: read from the sources, to find modules that use each other in a circle.
//!
//! A module is a file. It uses another when it names something that the other defines; a name that a module only hands
//! on (`pub use`) is looked up where it comes from, and handing on is no use. Tests are left out: they stand below
//! what they test. It reads text, not Rust: paths that begin with `crate`, `self`, `super` or a module of the file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result, ensure};

/// The path of a module in its crate; empty: the crate's root.
pub type Module = Vec<String>;

/// The modules of a crate and what each of them uses.
#[derive(Debug, Default)]
pub struct Modules(BTreeMap<Module, BTreeSet<Module>>);

/// What one file says.
#[derive(Debug, Default)]
struct Source {
    /// Its text without comments, texts, imports and tests.
    code: String,
    imports: Vec<Import>,
    children: BTreeSet<String>,
}

/// One name that a file takes from a path.
#[derive(Debug)]
struct Import {
    path: Vec<String>,
    name: String,
    is_handed_on: bool,
}

impl Modules {
    /// Reads the sources of a crate.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read(src: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        collect(src, &Vec::new(), &mut files)?;
        ensure!(!files.is_empty(), "{} has no sources", src.display());
        Ok(Self::of(&files))
    }

    fn of(files: &BTreeMap<Module, String>) -> Self {
        let sources: BTreeMap<Module, Source> =
            files.iter().map(|(module, text)| (module.clone(), Source::read(text))).collect();
        let uses = sources.iter().map(|(module, source)| {
            let used = source.named(module).filter_map(|path| resolve(&sources, &path, 0));
            (module.clone(), used.filter(|other| other != module).collect())
        });
        Self(uses.collect())
    }

    /// The uses that go against an order of places, each a file or a folder below the crate's root: whoever stands in a
    /// row uses only rows before it. What stands in no row is left out, and the root too.
    pub fn against(&self, order: &[Vec<String>]) -> Vec<String> {
        let row = |module: &Module| {
            let first = module.first()?;
            order.iter().position(|places| places.contains(first))
        };
        let mut found = Vec::new();
        for (module, uses) in &self.0 {
            for other in uses {
                if let (Some(here), Some(there)) = (row(module), row(other))
                    && there > here
                {
                    found.push(format!("{} uses {}", module.join("::"), other.join("::")));
                }
            }
        }
        found
    }

    /// The places of the crate, files and folders below its root.
    pub fn places(&self) -> BTreeSet<String> {
        self.0.keys().filter_map(|module| module.first().cloned()).collect()
    }

    /// The circles, each as the places that are in it: files, and at each level the modules with what is below them.
    pub fn circles(&self) -> Vec<BTreeSet<String>> {
        let mut circles = circles(&self.0);
        let parents: BTreeSet<Module> = self
            .0
            .keys()
            .filter_map(|module| module.split_last().map(|(_, parent)| parent.to_vec()))
            .collect();
        for parent in parents {
            // What is below a module counts as the module.
            let place = |module: &Module| -> Option<Module> {
                module.starts_with(&parent).then(|| module[..module.len().min(parent.len() + 1)].to_vec())
            };
            let mut level: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
            for (module, uses) in &self.0 {
                let Some(here) = place(module) else { continue };
                let others = uses.iter().filter_map(place).filter(|other| *other != here);
                level.entry(here.clone()).or_default().extend(others);
            }
            circles.extend(self::circles(&level));
        }
        circles.sort();
        circles.dedup();
        circles
    }
}

fn collect(folder: &Path, module: &Module, files: &mut BTreeMap<Module, String>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).context("a name")?.to_owned();
        if name == "tests" {
            continue;
        }
        let mut below = module.clone();
        if path.is_dir() {
            below.push(name);
            collect(&path, &below, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") && name != "main" {
            if !matches!(name.as_str(), "lib" | "mod") {
                below.push(name);
            }
            files.insert(below, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

impl Source {
    fn read(text: &str) -> Self {
        // Tests within the file stand at its end.
        let text = text.replace("#[cfg(test)]\nmod tests;", "");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let mut source = Self::default();
        let mut rest = without_comments(text);
        while let Some((before, (public, tree), after)) = next_import(&rest) {
            source.code.push_str(before);
            expand(tree, &mut Vec::new(), public, &mut source.imports);
            rest = after.to_owned();
        }
        source.code.push_str(&rest);
        let words: Vec<&str> = source.code.split_whitespace().collect();
        let declared = words.windows(2).filter(|pair| pair[0] == "mod");
        source.children = declared.filter_map(|pair| pair[1].strip_suffix(';')).map(str::to_owned).collect();
        source
    }

    /// Every path of the crate that the file names for itself.
    fn named(&self, module: &Module) -> impl Iterator<Item = Vec<String>> {
        let imported = self.imports.iter().filter(|import| !import.is_handed_on || self.says(&import.name));
        let imported = imported.map(|import| import.path.clone());
        let written = paths(&self.code);
        imported
            .chain(written)
            .filter_map(|path| self.absolute(module, &path))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Whether the code has this word.
    fn says(&self, name: &str) -> bool {
        self.code.split(|letter: char| !is_of_a_word(letter)).any(|word| word == name)
    }

    /// A path from the crate's root; `None`: it leads out of the crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let mut at = module.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {}
            child if self.children.contains(child) => {}
            _ => return None,
        }
        while rest.first().is_some_and(|part| part == "super") {
            at.pop()?;
            rest = &rest[1..];
        }
        at.extend_from_slice(rest);
        Some(at)
    }
}

/// The file that defines what an absolute path names.
fn resolve(sources: &BTreeMap<Module, Source>, path: &[String], depth: usize) -> Option<Module> {
    let length = (0..=path.len()).rev().find(|length| sources.contains_key(&path[..*length]))?;
    let module = path[..length].to_vec();
    let Some(name) = path.get(length) else { return Some(module) };
    let source = &sources[&module];
    let import = source.imports.iter().find(|import| import.name == *name);
    match import.and_then(|import| source.absolute(&module, &import.path)) {
        Some(origin) if depth < 16 => resolve(sources, &origin, depth + 1),
        _ if import.is_some() => None,
        _ => Some(module),
    }
}

/// The text without comments and without what stands between quotation marks.
fn without_comments(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        let mut in_text = false;
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' if in_text => drop(letters.next()),
                '"' => in_text = !in_text,
                '/' if !in_text && letters.peek() == Some(&'/') => break,
                _ if in_text => {}
                letter => code.push(letter),
            }
        }
        code.push('\n');
    }
    code
}

/// What is before the next import, whether the import hands on, its tree, and what is after it.
fn next_import(code: &str) -> Option<(&str, (bool, &str), &str)> {
    let mut start = 0;
    for line in code.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let tree = trimmed.strip_prefix("use ").map(|_| false).or_else(|| {
            let public = trimmed.strip_prefix("pub")?;
            let public =
                public.strip_prefix('(').map_or(Some(public), |of| of.split_once(')').map(|(_, of)| of))?;
            public.trim_start().starts_with("use ").then_some(true)
        });
        if let Some(is_public) = tree {
            let from = start + code[start..].find("use ")? + 4;
            let end = from + code[from..].find(';')?;
            return Some((&code[..start], (is_public, &code[from..end]), &code[end + 1..]));
        }
        start += line.len();
    }
    None
}

/// Every name of a tree of imports, with its path.
fn expand(tree: &str, prefix: &mut Vec<String>, is_handed_on: bool, into: &mut Vec<Import>) {
    let tree = tree.trim();
    let depth = prefix.len();
    let (path, group) = match tree.split_once('{') {
        Some((path, group)) => (path, group.rsplit_once('}').map(|(group, _)| group)),
        None => (tree, None),
    };
    let (path, alias) = match path.split_once(" as ") {
        Some((path, alias)) if group.is_none() => (path, Some(alias.trim().to_owned())),
        _ => (path, None),
    };
    prefix.extend(path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned));
    match group {
        Some(group) => {
            let (mut level, mut start) = (0_usize, 0);
            for (at, letter) in group.char_indices().chain([(group.len(), ',')]) {
                match letter {
                    '{' => level += 1,
                    '}' => level -= 1,
                    ',' if level == 0 => {
                        if !group[start..at].trim().is_empty() {
                            expand(&group[start..at], prefix, is_handed_on, into);
                        }
                        start = at + 1;
                    }
                    _ => {}
                }
            }
        }
        None => {
            let mut path = prefix.clone();
            // `self` and `*` stand for the module before them.
            if path.len() > 1 && path.last().is_some_and(|last| last == "self" || last == "*") {
                path.pop();
            }
            if let Some(last) = path.last() {
                let name = alias.unwrap_or_else(|| last.clone());
                into.push(Import { path, name, is_handed_on });
            }
        }
    }
    prefix.truncate(depth);
}

fn is_of_a_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Every path of at least two parts in the code.
fn paths(code: &str) -> Vec<Vec<String>> {
    code.split(|letter: char| !is_of_a_word(letter) && letter != ':')
        .filter(|text| text.contains("::") && !text.starts_with(':'))
        .map(|text| text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect())
        .collect()
}

/// The strongly connected parts of a graph that have more than one place.
fn circles(graph: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<String>> {
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = next.pop() {
            for other in graph.get(&module).into_iter().flatten() {
                if seen.insert(other.clone()) {
                    next.push(other.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        graph.keys().map(|module| (module, reached(module))).collect();
    let mut circles = BTreeSet::new();
    for (module, seen) in reached.iter().filter(|(module, seen)| seen.contains(**module)) {
        let both = seen.iter().filter(|other| reached.get(*other).is_some_and(|back| back.contains(*module)));
        circles.insert(
            both.map(|place| if place.is_empty() { "the root".to_owned() } else { place.join("::") })
                .collect(),
        );
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of<const N: usize>(files: [(&str, &str); N]) -> Vec<Vec<String>> {
        let module =
            |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let files = files.map(|(path, text)| (module(path), text.to_owned()));
        Modules::of(&files.into()).circles().into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn modules_that_use_each_other_are_a_circle_by_whatever_path() {
        for (one, other) in [
            ("use crate::b::B;", "use super::a::A;"),
            ("use crate::{c, b::{self, B as Other}};", "fn f() -> crate::a::A { todo() }"),
            ("pub struct A(super::b::B);", "pub(crate) use std::fmt;\nuse crate::a;"),
        ] {
            let found = circles_of([("", "mod a;\nmod b;"), ("a", one), ("b", other)]);
            assert_eq!(found, [["a", "b"]], "{one} {other}");
        }
    }

    #[test]
    fn what_is_handed_on_is_looked_up_where_it_is_defined() {
        let root = "mod a;\nmod b;\npub use a::A;\npub use b::B;";
        assert!(circles_of([("", root), ("a", "pub struct A;"), ("b", "use crate::A;")]).is_empty());
        let found = circles_of([("", root), ("a", "use crate::B;"), ("b", "use crate::A;")]);
        assert_eq!(found, [["a", "b"]]);
        // The root uses what it hands on.
        let uses = "mod a;\npub use a::A;\npub struct Whole(A);";
        assert_eq!(circles_of([("", uses), ("a", "use crate::Whole;")]), [["a", "the root"]]);
        assert!(
            circles_of([("", uses), ("a", "// use crate::Whole;\nconst T: &str = \"crate::Whole\";")])
                .is_empty()
        );
    }

    #[test]
    fn folders_are_a_circle_also_where_their_files_are_none() {
        let found = circles_of([
            ("", "mod a;\nmod b;"),
            ("a", "mod low;\nmod high;"),
            ("a::low", "pub struct Low;"),
            ("a::high", "use crate::b::B;"),
            ("b", "use crate::a::low::Low;"),
        ]);
        assert_eq!(found, [["a", "b"]]);
    }

    #[test]
    fn a_use_of_a_later_row_is_against_the_order() {
        let files = [
            ("", "mod a;\nmod b;"),
            ("a", "mod low;"),
            ("a::low", "use crate::b::B;"),
            ("b", "pub struct B;"),
        ];
        let module =
            |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let modules = Modules::of(&files.map(|(path, text)| (module(path), text.to_owned())).into());
        let order = |rows: [&str; 2]| rows.map(|row| vec![row.to_owned()]).to_vec();
        assert_eq!(modules.against(&order(["a", "b"])), ["a::low uses b"]);
        assert!(modules.against(&order(["b", "a"])).is_empty());
    }

    #[test]
    fn tests_are_left_out() {
        let tested = "pub struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}";
        assert!(circles_of([("", "mod a;\nmod b;"), ("a", tested), ("b", "use crate::a::A;")]).is_empty());
        let elsewhere = "#[cfg(test)]\nmod tests;\nuse crate::b::B;";
        let found = circles_of([("", "mod a;\nmod b;"), ("a", elsewhere), ("b", "use crate::a::A;")]);
        assert_eq!(found, [["a", "b"]], "what follows is read");
    }
}
