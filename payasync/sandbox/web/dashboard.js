// The page refreshes itself. Forms, and parts that are focused or selected, are left alone.
(() => {
  const opened = (part) => [...part.querySelectorAll("details[open]")].map((each) => each.id);
  const used = (part) => part.contains(document.activeElement)
    || (!document.getSelection().isCollapsed && part.contains(document.getSelection().anchorNode));
  const renew = (part, fresh) => {
    const open = opened(part);
    part.replaceWith(document.adoptNode(fresh));
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  };
  const refresh = async () => {
    if (document.hidden) return;
    const response = await fetch(location.pathname + location.search).catch(() => ({ ok: false }));
    document.getElementById("lost").hidden = response.ok;
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh && !used(part) && fresh.innerHTML !== part.innerHTML.replaceAll(' open=""', "")) renew(part, fresh);
    }
  };
  const later = () => setTimeout(() => refresh().finally(later), 1500);
  later();
})();
