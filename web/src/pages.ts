import type { Component } from "svelte";
import Gpus from "./pages/Gpus.svelte";
import History from "./pages/History.svelte";
import Job from "./pages/Job.svelte";
import Jobs from "./pages/Jobs.svelte";
import Keys from "./pages/Keys.svelte";
import Leases from "./pages/Leases.svelte";
import Me from "./pages/Me.svelte";
import Nodes from "./pages/Nodes.svelte";
import Now from "./pages/Now.svelte";
import Queue from "./pages/Queue.svelte";
import Reservations from "./pages/Reservations.svelte";
import Services from "./pages/Services.svelte";
import Submit from "./pages/Submit.svelte";
import Tenants from "./pages/Tenants.svelte";
import Usage from "./pages/Usage.svelte";

interface Page {
  path: string;
  title: string;
  component: Component;
  /** The key behind `g`. */
  key?: string;
  /** A group of its own begins. */
  apart?: boolean;
  children?: string[];
}

export const pages: Page[] = [
  { path: "now", title: "Now", component: Now, key: "n" },
  { path: "queue", title: "Queue", component: Queue, key: "q" },
  { path: "jobs", title: "Jobs", component: Jobs, key: "j", children: ["job"] },
  { path: "submit", title: "Submit", component: Submit, key: "s" },
  { path: "gpus", title: "GPUs", component: Gpus, key: "p", apart: true },
  { path: "nodes", title: "Nodes", component: Nodes, key: "o" },
  { path: "tenants", title: "Tenants", component: Tenants, key: "t" },
  { path: "history", title: "History", component: History, key: "h", apart: true },
  { path: "usage", title: "Usage", component: Usage, key: "u" },
  { path: "services", title: "Services", component: Services, apart: true },
  { path: "leases", title: "Leases", component: Leases },
  { path: "reservations", title: "Reservations", component: Reservations },
  { path: "keys", title: "Keys", component: Keys },
];

export const everyPage: Page[] = [
  ...pages,
  { path: "job", title: "Job", component: Job },
  { path: "me", title: "You", component: Me },
];
