//! Fields of payloads by JSON Pointers. One pass over a payload finds the fields of all pointers of
//! a set of matchers, and skips everything else, however deep it is nested.

use crate::pointer::{Pointer, Step};
use crate::value::Field;

/// Pointers as a tree, so that a payload is walked once.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    nodes: Vec<Node>,
    fields: usize,
}

#[derive(Clone, Debug, Default)]
struct Node {
    children: Vec<(Step, usize)>,
    field: Option<usize>,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths { nodes: vec![Node::default()], fields: 0 }
    }
}

impl Paths {
    /// Where the walk begins.
    pub const ROOT: usize = 0;

    /// The number of the field that a pointer leads to.
    pub fn add(&mut self, pointer: &Pointer) -> usize {
        let mut at = Paths::ROOT;
        for step in &pointer.steps {
            let known = self.nodes[at].children.iter().find(|(other, _)| other == step);
            at = match known {
                Some((_, child)) => *child,
                None => {
                    let child = self.nodes.len();
                    self.nodes.push(Node::default());
                    self.nodes[at].children.push((step.clone(), child));
                    child
                }
            };
        }
        let next = &mut self.fields;
        *self.nodes[at].field.get_or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }

    /// The child for a member of an object.
    pub fn member(&self, node: usize, key: &str) -> Option<usize> {
        self.nodes[node].children.iter().find(|(step, _)| step.key == key).map(|(_, child)| *child)
    }

    /// The child for a place in an array.
    pub fn element(&self, node: usize, index: u64) -> Option<usize> {
        let mut children = self.nodes[node].children.iter();
        children.find(|(step, _)| step.index == Some(index)).map(|(_, child)| *child)
    }
}

/// What a walk has found, by the number of the field.
#[derive(Debug)]
pub(super) struct Found<'p, 'a> {
    pub paths: &'p Paths,
    pub fields: Vec<Field<'a>>,
}

impl<'p, 'a> Found<'p, 'a> {
    /// Nothing yet.
    pub fn nothing(paths: &'p Paths) -> Found<'p, 'a> {
        Found { paths, fields: vec![Field::Absent; paths.fields] }
    }

    /// Something stands at a node.
    pub fn set(&mut self, node: usize, field: Field<'a>) {
        if let Some(number) = self.paths.nodes[node].field {
            self.fields[number] = field;
        }
    }

    /// Forgets an earlier value of a key that is twice in its object: only the last value counts.
    pub fn forget(&mut self, node: usize) {
        self.set(node, Field::Absent);
        for (_, child) in &self.paths.nodes[node].children {
            self.forget(*child);
        }
    }
}
