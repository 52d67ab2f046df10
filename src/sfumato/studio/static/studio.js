// The studio works without this script: it adds sliders beside numbers, buttons that copy, and hides what they replace.
document.documentElement.classList.add("scripted");
for (const number of document.querySelectorAll("[data-slider]")) {
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: number.min, max: number.dataset.slider, step: number.step });
  slider.value = number.value || (number.name === "t" ? number.dataset.slider : number.min);
  slider.setAttribute("aria-label", number.labels[0].querySelector("strong").textContent);
  slider.addEventListener("input", () => (number.value = slider.value));
  number.addEventListener("input", () => (slider.value = number.value));
  number.before(slider);
}
for (const block of document.querySelectorAll("[data-copy]")) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "copy quiet", textContent: "Copy" });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.innerText);
    button.textContent = "Copied";
  });
  block.before(button);
}
