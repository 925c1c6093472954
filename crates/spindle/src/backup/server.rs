//! The segments of a running server, through its API.

use bytes::Bytes;
use spindle_backup::{Listing, Source, SourceError};
use spindle_log::Position;

use crate::{
    cli::BackupArgs,
    client::{ApiRequest, AskError, Native},
};

/// A running server.
pub struct ServerSource(Native);

impl ServerSource {
    /// The server whose URL the command names.
    pub fn of(url: &str, args: &BackupArgs) -> anyhow::Result<Self> {
        Native::at_url(url, "URL", &args.papers).map(Self)
    }

    fn failed(&self, error: AskError) -> SourceError {
        SourceError::Failed(self.0.explain(error, "backup").into())
    }
}

impl Source for ServerSource {
    fn listing(&mut self) -> Result<Listing, SourceError> {
        self.0.http().ask(ApiRequest::get("/api/v1/backup")).map_err(|error| self.failed(error))
    }

    fn read(&mut self, first: Position, offset: u64, len: usize) -> Result<Bytes, SourceError> {
        let path = format!("/api/v1/backup/segments/{first}");
        let mut asking = ApiRequest::get(&path);
        let last = offset + len as u64 - 1;
        asking.headers.push(("Range", format!("bytes={offset}-{last}")));
        match self.0.http().answer(asking) {
            Ok(bytes) => Ok(bytes.into()),
            Err(AskError::NotFound) => Err(SourceError::Gone),
            Err(error) => Err(self.failed(error)),
        }
    }
}
