//! Finds the libraries that have examples in their documentation, which Cargo builds and runs.
//!
//! Few have any, and looking for them takes Cargo some seconds for each library. So those that have none say
//! `doctest = false` in their `Cargo.toml`. (Naming only the packages that have some to Cargo would
//! build their dependencies once more, with other features than for the tests.)

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The words after the fence of a code block that mean Rust; a block without any is Rust, too.
const OF_RUST: [&str; 5] = ["rust", "no_run", "should_panic", "compile_fail", "ignore"];
/// The kinds of crates that count as libraries. Cargo also runs the examples of libraries for other
/// languages if they are one of these too.
const LIBRARIES: [&str; 2] = ["lib", "rlib"];

/// Checks with the output of `cargo metadata` that the libraries whose examples are run are those
/// that have some.
pub fn all_are_run(metadata: &Value) -> Result<()> {
    let mut found = 0;
    for package in metadata["packages"].as_array().context("Cargo names no packages")? {
        if !package["source"].is_null() {
            continue;
        }
        let kinds = |target: &Value| target["crate_types"].as_array().cloned().unwrap_or_default();
        let is_library = |target: &&Value| {
            kinds(target).iter().any(|kind| LIBRARIES.map(Value::from).contains(kind))
        };
        let mut targets = package["targets"].as_array().into_iter().flatten();
        let Some(library) = targets.find(is_library) else { continue };
        let source = library["src_path"].as_str().and_then(|path| Path::new(path).parent());
        let has_examples = has_examples(source.context("a library is somewhere")?)?;
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        ensure!(
            (library["doctest"] == true) == has_examples,
            "{manifest}: the library has {}: {} doctest = false in [lib]",
            if has_examples {
                "examples in its documentation"
            } else {
                "no examples in its documentation"
            },
            if has_examples { "remove" } else { "write" },
        );
        found += usize::from(has_examples);
    }
    ensure!(found > 0, "no package has examples: what looks for them is wrong");
    Ok(())
}

/// Whether there is an example in one of the files of this folder.
fn has_examples(folder: &Path) -> Result<bool> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    for path in paths {
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if path.is_dir() && has_examples(&path)?
            || is_source && is_example_in(&fs::read_to_string(&path)?)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the comments of some code have a block of Rust.
fn is_example_in(code: &str) -> bool {
    let comments = code.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
    });
    let marks = comments.filter_map(|comment| comment.trim().strip_prefix("```"));
    // Every second mark ends a block.
    marks.step_by(2).any(|words| words.split(',').all(|word| is_of_rust(word.trim())))
}

fn is_of_rust(word: &str) -> bool {
    word.is_empty() || OF_RUST.contains(&word) || word.starts_with("edition")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_rust_are_examples_and_others_are_none() {
        let block = |words: &str| format!("//! Text.\n//!\n//! ```{words}\n//! code\n//! ```\n");
        for words in ["", "rust", "no_run", "should_panic,edition2024"] {
            assert!(is_example_in(&block(words)), "{words}");
            let behind_another = block("text") + &block(words).replace("//!", "    ///");
            assert!(is_example_in(&behind_another), "{words}");
        }
        for words in ["text", "sh", "toml"] {
            assert!(!is_example_in(&block(words)), "{words}");
        }
        assert!(!is_example_in("let text = \"```\";\n// ```\n"));
    }
}
