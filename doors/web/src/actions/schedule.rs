//! What can be done to a schedule.

use axum::extract::Path;
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use serde_json::Value;
use spindle_access::Role;

use crate::actions::{Answer, Question, no_action};
use crate::ask::Asked;
use crate::form::Form;
use crate::html::{Tab, cut, job_link, plural, queue_link};
use crate::page::Page;
use crate::pages::job::read;
use crate::pages::named::{SCHEDULE, path_of};
use crate::shapes::{Schedule, ScheduleRun, ScheduledJob};

/// The question.
pub(crate) async fn ask(page: Page, Path(action): Path<String>) -> Answer {
    let (name, path) = SCHEDULE.named(&page.query())?;
    let (it, tag): (Schedule, String) = page.ask.get_tagged(&path).await?;
    let (verb, about) = words(&action, &it)?;
    let is_dangerous = action == "remove";
    let question = Question {
        tab: Tab::Schedules,
        title: &format!("{verb} the schedule {}?", cut(&name, 200)),
        about,
        fields: html! { @if is_dangerous { input type="hidden" name="tag" value=(tag); } },
        button: &format!("{verb} the schedule"),
        is_dangerous,
        to: &path_of(&format!("/schedule/{action}"), &name),
        back: &path_of("/schedule", &name),
    };
    Ok(question.ask(&page).await)
}

/// The verb, and what happens.
fn words(action: &str, it: &Schedule) -> Asked<(&'static str, Markup)> {
    let last = it.last_job.filter(|_| it.is_running);
    Ok(match action {
        "pause" => {
            let about = html! {
                p { "Times that come until it is resumed are passed over: they are not missed." }
                @if let Some(id) = last { p { "Its last job, " (job_link(id)) ", goes on." } }
            };
            ("Pause", about)
        }
        "resume" => ("Resume", html! { p { "It goes on with its first time from now." } }),
        "run" => {
            let job: ScheduledJob = read(it.job.get())?;
            let about = html! {
                p {
                    "Its job is submitted to " (queue_link(&job.queue))
                    " at once. Its times stay as they are" @if it.paused { ", and it stays paused" } "."
                }
                @if let Some(id) = last {
                    p.notice { "Its last job, " (job_link(id)) ", is unfinished: it goes on beside the new one." }
                }
            };
            ("Run", about)
        }
        "remove" => {
            let about = html! {
                p { "No more jobs come of it. " (plural(it.submitted, "job")) " came of it so far; they stay." }
                p { "That cannot be undone. To keep it for later, pause it." }
            };
            ("Remove", about)
        }
        _ => return Err(no_action()),
    })
}

/// Does it.
pub(crate) async fn act(page: Page, Path(action): Path<String>, form: Form) -> Answer {
    let (name, path) = SCHEDULE.named(&page.query())?;
    match action.as_str() {
        "remove" => {
            page.ask.remove(&path, form.field("tag")).await?;
            return Ok(Redirect::to("/schedules").into_response());
        }
        "run" => {
            let run: ScheduleRun = page.ask.post(&format!("{path}/run"), &Value::Null).await?;
            if page.may(Role::Read) {
                return Ok(Redirect::to(&format!("/jobs/{}", run.job)).into_response());
            }
        }
        "pause" | "resume" => {
            page.ask.post::<Schedule>(&format!("{path}/{action}"), &Value::Null).await?;
        }
        _ => return Err(no_action()),
    }
    Ok(Redirect::to(&path_of("/schedule", &name)).into_response())
}
