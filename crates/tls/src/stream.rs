//! Connections that are plain or encrypted, for async listeners.
