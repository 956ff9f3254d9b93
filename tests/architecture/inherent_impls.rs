//! The inherent impl of a type is in the file that declares it: a type with too many methods is split, not its file.

use std::collections::HashSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::sources;

#[derive(Default)]
struct Types {
    declared: HashSet<String>,
    /// The types with an inherent impl, by line.
    implemented: Vec<(usize, String)>,
}

impl Types {
    fn read(text: &str) -> Self {
        let mut types = Self::default();
        types.walk(text.parse().expect("source that compiles"));
        types
    }

    fn walk(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        // An `impl` elsewhere than at the start of an item is a type.
        let mut starts_item = true;
        for (index, token) in tokens.iter().enumerate() {
            let rest = &tokens[index + 1..];
            match token {
                TokenTree::Ident(word) if word == "impl" && starts_item => {
                    let line = word.span().start().line;
                    self.implemented.extend(implemented_type(rest).map(|name| (line, name)));
                }
                TokenTree::Ident(word) if word == "struct" || word == "enum" || word == "union" => {
                    self.declared.extend(rest.first().map(ToString::to_string));
                }
                TokenTree::Group(group) if !is_test_module(&tokens[..index]) => {
                    self.walk(group.stream());
                }
                _ => {}
            }
            starts_item = match token {
                TokenTree::Group(group) => group.delimiter() != Delimiter::Parenthesis,
                token => is_sign(token, ';'),
            };
        }
    }
}

/// Whether a group after these tokens is the body of a test module.
fn is_test_module(before: &[TokenTree]) -> bool {
    matches!(before, [.., module, name] if is_word(Some(module), "mod") && is_word(Some(name), "tests"))
}

fn is_word(token: Option<&TokenTree>, wanted: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(word)) if word == wanted)
}

fn is_sign(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(sign) if sign.as_char() == wanted)
}

/// The name of the type of an inherent impl, whose tokens follow; `None` if a trait is implemented, or in a macro.
fn implemented_type(tokens: &[TokenTree]) -> Option<String> {
    let is_body = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    let header = &tokens[..tokens.iter().position(is_body)?];
    let of_trait = |pair: &[TokenTree]| is_word(pair.first(), "for") && !is_sign(&pair[1], '<');
    if header.windows(2).any(of_trait) || header.iter().any(|token| is_sign(token, '$')) {
        return None;
    }
    let (mut depth, mut name) = (0, None);
    for (index, token) in header.iter().enumerate() {
        match token {
            token if is_sign(token, '<') => depth += 1,
            // The `>` of an arrow closes nothing.
            token if is_sign(token, '>') && !is_sign(&header[index - 1], '-') => depth -= 1,
            TokenTree::Ident(word) if word == "where" => break,
            TokenTree::Ident(word) if depth == 0 => name = Some(word.to_string()),
            _ => {}
        }
    }
    name
}

/// A line for each inherent impl of a type that another file declares.
fn misplaced(path: &str, text: &str) -> Vec<String> {
    let Types { declared, implemented } = Types::read(text);
    let misplaced = implemented.into_iter().filter(|(_, name)| !declared.contains(name));
    misplaced
        .map(|(line, name)| {
            format!("{path}:{line}: {name} is declared in another file: split the type")
        })
        .collect()
}

#[test]
fn a_type_has_its_inherent_impl_in_the_file_that_declares_it() {
    let files = sources(&["charts/src", "core/src", "src", "storage/src"]);
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
    let found: Vec<String> = files
        .iter()
        .filter(|(path, _)| !is_test(path))
        .flat_map(|(path, text)| misplaced(path, text))
        .collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn an_impl_in_another_file_than_the_type_is_found() {
    for text in [
        "impl Queue {}",
        "use super::Queue;\n#[allow(unused)]\nimpl<T: Fn(u8) -> Vec<T>> Queue<T> where T: for<'a> Get<'a> {}",
        "struct Item;\nimpl super::Queue<Item> { fn f() {} }",
        "fn f() { impl Queue {} }",
    ] {
        let found = misplaced("src/queue/pop.rs", text);
        assert!(found.len() == 1 && found[0].contains(": Queue is declared"), "{text}: {found:?}");
    }
    for text in [
        "pub struct Queue;\nimpl Queue {}",
        "families! { pub struct Queue via new { a: B } }\nimpl<T> Queue<T> {}",
        "impl<T> Iterator for Queue<T> where T: Copy {}",
        "fn f(a: impl Get) -> impl Get { (a, [0; 2]) }",
        "macro_rules! m { ($name:ident) => { impl $name {} }; }",
        "#[cfg(test)]\nmod tests { impl Queue {} }",
    ] {
        assert!(misplaced("src/queue/pop.rs", text).is_empty(), "{text}");
    }
}
