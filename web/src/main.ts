import { mount } from "svelte";
import "./app.css";
import App from "./App.svelte";
import { store } from "./lib/store.svelte";
import { applyTheme } from "./lib/theme.svelte";

applyTheme();
store.begin();
mount(App, { target: document.getElementById("app")! });
