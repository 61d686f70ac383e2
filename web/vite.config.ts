import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Fixed names: the scheduler adds the content's hash to the paths. One script, one style sheet, nothing loaded later.
export default defineConfig({
  plugins: [svelte()],
  base: "/",
  publicDir: "public",
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      input: "src/main.ts",
      output: {
        entryFileNames: "app.js",
        assetFileNames: "app[extname]",
        codeSplitting: false,
      },
    },
  },
});
