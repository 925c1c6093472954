//! The router of everything over HTTP.
