// The button is shown only if this script runs: without it, one click selects the command.
(() => {
  const button = document.getElementById("copy");
  if (!button || !navigator.clipboard) return;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const written = navigator.clipboard.writeText(document.getElementById("command").textContent);
    const said = await written.then(() => "Copied", () => "The browser refused: select the text below");
    document.getElementById("copied").textContent = said;
  });
})();
