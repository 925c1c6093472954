//! The place in the feed up to which everything was delivered, in a file.

use std::{fs, io, path::PathBuf};

use spindle_engine::FeedId;

/// Remembers a place, or forgets it at the end where there is no folder to keep it in.
#[derive(Debug)]
pub struct Place {
    path: Option<PathBuf>,
    now: Option<FeedId>,
}

impl Place {
    /// The place that a file remembers. One that cannot be read is as good as none.
    pub fn open(path: Option<PathBuf>) -> io::Result<Place> {
        let text = match path.as_ref().map(fs::read_to_string) {
            None => None,
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => None,
            Some(read) => Some(read?),
        };
        let now = text.and_then(|text| text.trim().parse().ok());
        Ok(Place { path, now })
    }

    /// The place.
    pub fn now(&self) -> Option<FeedId> {
        self.now
    }

    /// Everything up to here was delivered. A crash may take this back: then it is delivered again.
    pub fn move_to(&mut self, place: FeedId) -> io::Result<()> {
        if self.now == Some(place) {
            return Ok(());
        }
        self.now = Some(place);
        let Some(path) = &self.path else { return Ok(()) };
        // Renamed, so that no half of it is ever read.
        let fresh = path.with_extension("new");
        fs::write(&fresh, format!("{place}\n"))?;
        fs::rename(&fresh, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("place");
        let mut place = Place::open(Some(path.clone())).unwrap();
        assert_eq!(place.now(), None);
        let here = FeedId { position: 7, index: 2 };
        place.move_to(here).unwrap();
        assert_eq!(Place::open(Some(path.clone())).unwrap().now(), Some(here));
        fs::write(&path, "rubbish").unwrap();
        assert_eq!(Place::open(Some(path)).unwrap().now(), None);
    }
}
