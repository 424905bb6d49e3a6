// What is unsent, in the browser's own storage. Part of labeller.js.

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A reload keeps the tab's name, and with it the samples on the desk; a copy of a tab is another.
function tabName(scope) {
  const name = `${scope}/tab`;
  try {
    const [visit] = performance.getEntriesByType("navigation");
    const kept = visit && visit.type === "reload" ? sessionStorage.getItem(name) : null;
    const tab = kept || newId();
    sessionStorage.setItem(name, tab);
    return tab;
  } catch {
    return newId();
  }
}

// Each answer has a key of its own, so that two tabs never overwrite each other's.
function loadOutbox(scope) {
  const events = [];
  try {
    for (let i = 0; i < localStorage.length; i += 1) {
      const name = localStorage.key(i);
      if (name.startsWith(`${scope}/`)) addTo(events, localStorage.getItem(name));
    }
  } catch {
    // Storage is forbidden: only this page's answers are kept.
  }
  return events.sort((a, b) => a.at - b.at || a.order - b.order);
}

// One that was tampered with must not keep the others from being sent.
function addTo(events, text) {
  try {
    const event = JSON.parse(text);
    if (event && typeof event.uuid === "string") events.push(event);
  } catch {
    // No answer of ours.
  }
}

let order = 0;

function remember(scope, event) {
  order += 1;
  event.order = order;
  try {
    localStorage.setItem(`${scope}/${event.uuid}`, JSON.stringify(event));
  } catch {
    // Full or forbidden: the answer is still sent, it only would not survive a closed tab.
  }
}

function forget(scope, event) {
  try {
    localStorage.removeItem(`${scope}/${event.uuid}`);
  } catch {
    // As above.
  }
}
