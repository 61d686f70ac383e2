export type Theme = "auto" | "light" | "dark";
const KEPT = "gpu-scheduler.theme";

const kept = localStorage.getItem(KEPT);
export const theme = $state<{ is: Theme; dark: boolean }>({ is: kept === "light" || kept === "dark" ? kept : "auto", dark: false });
const system = matchMedia("(prefers-color-scheme: dark)");

export function applyTheme(): void {
  theme.dark = theme.is === "dark" || (theme.is === "auto" && system.matches);
  document.documentElement.dataset.theme = theme.dark ? "dark" : "light";
}
system.addEventListener("change", applyTheme);

export function nextTheme(): void {
  theme.is = theme.is === "auto" ? "light" : theme.is === "light" ? "dark" : "auto";
  localStorage.setItem(KEPT, theme.is);
  applyTheme();
}
