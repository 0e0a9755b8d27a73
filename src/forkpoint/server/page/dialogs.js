// Questions, before something is done that matters.

import { h, render, say } from "./dom.js";

const open = new Set();

/** Ask in a dialog. `fields(redraw)`: the form's content; `submit(form, tell)` does it, and may throw what is then shown; `tell(text)` says
 * how far it is. `stays`: it can be sent again and again. Resolves to its result, or undefined if the dialog was closed. */
export function ask({ title, text, fields = () => [], label, danger = false, stays = false, submit }) {
  const dialog = document.createElement("dialog");
  document.body.append(dialog);
  open.add(dialog);
  const titleId = `dialog-${open.size}-title`;
  dialog.setAttribute("aria-labelledby", titleId);
  return new Promise((resolve) => {
    let result, busy = false, note = null, error = null;
    const send = async (event) => {
      event.preventDefault();
      if (busy) return;
      [busy, error, note] = [true, null, null];
      draw();
      try {
        result = await submit(event.target, (told) => { note = told; draw(); });
        if (!stays) return dialog.close();
        [busy, note] = [false, null];
        draw();
      } catch (problem) {
        if (problem.status === undefined) console.error(problem);
        [busy, error, note] = [false, problem.message, null];
        draw();
        say(problem.message);
      }
    };
    const draw = () => render(dialog, h("form", { on: { submit: send }, method: "dialog" },
      h("h2", { id: titleId }, title),
      text && h("p", { class: "quiet" }, text),
      h("div", { class: "fields" }, fields(draw)),
      h("div", { role: "status" }, note && h("p", { class: "quiet" }, note), error && h("p", { class: "error" }, error)),
      h("div", { class: "actions" },
        h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: busy }, busy ? "Please wait …" : label),
        h("button", { type: "button", on: { click: () => dialog.close() } }, "Close"))));
    draw();
    dialog.addEventListener("close", () => {
      open.delete(dialog);
      dialog.remove();
      resolve(result);
    });
    dialog.showModal();
  });
}

export function closeDialogs() {
  for (const dialog of open) dialog.close();
}

export const field = (label, input, hint = null) => h("label", null, label, input, hint && h("small", null, hint));
export const check = (name, label, hint = null) => h("label", { class: "check" }, h("input", { type: "checkbox", name }), h("span", null, label, hint && h("small", null, hint)));
