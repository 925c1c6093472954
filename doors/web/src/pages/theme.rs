//! The switch between light and dark.

use axum::response::{IntoResponse, Redirect, Response};

use crate::enter::Theme;
use crate::form::Form;
use crate::page::Page;
use crate::pages::login::own_path;

/// Remembers a choice, and goes back to where it was made.
pub(crate) async fn choose(page: Page, form: Form) -> Response {
    let mut response = Redirect::to(own_path(form.field("next"))).into_response();
    let theme = Theme::named(form.field("theme"));
    theme.keep(response.headers_mut(), page.visit.is_encrypted);
    response
}
