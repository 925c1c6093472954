// Keeps an open page up to date, and adds keys. Pages are whole without it.
"use strict";

(() => {
  const main = document.getElementById("main");
  const news = document.getElementById("news");
  const badge = document.getElementById("live");
  let isReading = false;
  let wasMoved = false;

  // Times, said anew while nothing happens.
  const units = [[86400, "day"], [3600, "h"], [60, "min"]];
  const said = (ms) => {
    const s = Math.round(Math.abs(ms) / 1000);
    if (s < 1) return "now";
    const unit = units.find(([length]) => s >= length);
    const count = unit ? Math.floor(s / unit[0]) : s;
    const word = unit ? unit[1] + (unit[1] === "day" && count > 1 ? "s" : "") : "s";
    return ms > 0 ? `${count} ${word} ago` : `in ${count} ${word}`;
  };
  const tick = () => {
    for (const time of document.querySelectorAll("time[datetime]:not([data-exact])")) {
      const text = said(Date.now() - Date.parse(time.dateTime));
      if (!/ h .* min/.test(time.textContent) && time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(tick, 10000);

  // An undo is offered for as long as it can be had.
  const expire = () => {
    for (const offer of document.querySelectorAll("[data-until]")) {
      if (Date.parse(offer.dataset.until) > Date.now()) continue;
      offer.removeAttribute("data-until");
      offer.textContent = "Gone for good: it cannot be undone any more.";
    }
  };
  setInterval(expire, 1000);

  // On a narrow screen the tabs scroll: the page's own is in view.
  const tab = document.querySelector(".tabs [aria-current]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.clientWidth / 2;

  // Forms are not replaced under the hands of who fills them in, nor output that is scrolled back.
  const isBusy = () => {
    const at = document.activeElement;
    const isTyping = at && main.contains(at) && /^(INPUT|TEXTAREA|SELECT|BUTTON)$/.test(at.tagName);
    const selection = getSelection();
    const isSelecting = selection && !selection.isCollapsed && main.contains(selection.anchorNode);
    const isBack = [...main.querySelectorAll(".tail")].some((tail) => tail.scrollTop < 0);
    return isTyping || isSelecting || isBack || marks().length
      || main.querySelector("form[method=post]:not([data-aside]), details[open]:not([data-kept])");
  };

  // What a person has scrolled or opened stays so when it is replaced. A drawing that is new is
  // scrolled to what it is about.
  const keeping = (change) => {
    const before = new Map();
    for (const { id, open, scrollLeft, scrollTop } of kept()) {
      before.set(id, { open, left: scrollLeft, top: scrollTop });
    }
    change();
    for (const it of kept()) {
      const was = before.get(it.id) || middle(it);
      if (was.open) it.open = true;
      it.scrollTo(was);
    }
  };
  const kept = () => main.querySelectorAll("[data-kept]");
  const middle = (box) => {
    const own = box.querySelector(".own rect");
    if (!own) return { left: 0, top: 0 };
    const [place, all] = [own.getBoundingClientRect(), box.getBoundingClientRect()];
    return {
      left: box.scrollLeft + place.left + place.width / 2 - all.left - all.width / 2,
      top: box.scrollTop + place.top + place.height / 2 - all.top - all.height / 2,
    };
  };
  kept().forEach((it) => it.scrollTo(middle(it)));

  // The marked rows of a list: how many there are, and what can be done to them, is always in view.
  const marks = () => main.querySelectorAll("input[name=ids]:checked");
  const showMarks = () => {
    const bar = main.querySelector(".marked");
    if (!bar) return;
    const count = marks().length;
    bar.hidden = count === 0;
    bar.querySelector("span").textContent = `${count} marked`;
  };
  // A box in the head of the list marks all of its rows.
  const dressMarks = () => {
    const head = main.querySelector("th.box");
    if (head) {
      const all = document.createElement("input");
      all.type = "checkbox";
      all.setAttribute("aria-label", "Mark all jobs of this page");
      all.addEventListener("change", () => {
        for (const box of main.querySelectorAll("input[name=ids]")) box.checked = all.checked;
        showMarks();
      });
      head.replaceChildren(all);
    }
    const bar = main.querySelector(".marked");
    if (bar) bar.classList.add("floating");
    showMarks();
  };
  main.addEventListener("change", (event) => {
    if (event.target.name === "ids") showMarks();
  });
  // A page that is come back to may still have its marks.
  addEventListener("pageshow", showMarks);
  dressMarks();

  const flash = (before) => {
    for (const row of main.querySelectorAll("[data-key]")) {
      const old = before.get(row.dataset.key);
      if (old !== undefined && old !== shown(row)) row.classList.add("changed");
    }
  };
  // What a row says, without its times: they always change.
  const shown = (row) => {
    const copy = row.cloneNode(true);
    copy.querySelectorAll("time").forEach((time) => time.remove());
    return copy.textContent;
  };

  // The page as it is now, if that can be had.
  const read = async () => {
    if (isReading) return null;
    isReading = true;
    wasMoved = false;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.redirected || !answer.ok) return null;
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      return isBusy() ? null : next.getElementById("main");
    } catch {
      // The feed says when the server is there again.
      return null;
    } finally {
      isReading = false;
    }
  };

  const show = async () => {
    if (isReading) return;
    news.hidden = true;
    const found = await read();
    if (!found) return;
    const rows = [...main.querySelectorAll("[data-key]")];
    const before = new Map(rows.map((row) => [row.dataset.key, shown(row)]));
    keeping(() => main.replaceChildren(...found.childNodes));
    dressMarks();
    flash(before);
  };

  // Parts that are followed change where they are, while the rest is read.
  const follow = async () => {
    const parts = [...main.querySelectorAll("[data-follow]")];
    const found = parts.length ? await read() : null;
    keeping(() => {
      for (const part of found ? parts : []) {
        const next = found.querySelector(`#${part.id}`);
        if (next) part.replaceWith(next);
      }
    });
  };

  const moved = () => {
    wasMoved = true;
    if (document.hidden || isBusy()) return;
    if (scrollY <= 200) return show();
    // What is being read does not jump.
    news.hidden = false;
    follow();
  };
  news.addEventListener("click", () => {
    scrollTo(0, 0);
    show();
  });
  document.addEventListener("visibilitychange", () => {
    if (wasMoved) moved();
  });

  // What the server only learns by asking others is read anew now and then.
  setInterval(() => {
    const isSeen = !document.hidden && scrollY <= 200;
    if (isSeen && main.querySelector("[data-again]") && !isBusy()) show();
  }, 5000);

  const own = main.querySelector("[data-feed]");
  // What has happened since this page was made counts, too, also when the feed comes back later.
  const address = new URL(own ? own.dataset.feed : "/live", location.href);
  if (main.dataset.logAt) address.searchParams.set("log_at", main.dataset.logAt);
  const feed = new EventSource(address);
  feed.addEventListener("open", () => { badge.hidden = false; });
  feed.addEventListener("error", () => { badge.hidden = true; });
  feed.addEventListener("moved", moved);
  addEventListener("pagehide", () => feed.close());

  // Keys.
  const keys = document.getElementById("keys");
  const hint = document.querySelector(".keys-hint");
  if (hint) hint.hidden = false;
  let isGoing = false;
  addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isGoing) {
      isGoing = false;
      const to = document.querySelector(`nav.tabs a[data-key="${CSS.escape(event.key)}"]`);
      if (to) to.click();
      return;
    }
    if (event.key === "g") isGoing = true;
    if (event.key === "?") keys.showModal();
    if (event.key === "/") {
      const search = document.querySelector("[data-slash]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });
})();
