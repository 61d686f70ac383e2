// Colours of tenants: white text is readable on each, and neighbours differ in lightness as well as in hue.
const palette = ["#3d5afe", "#00796b", "#b3541e", "#7b3fb5", "#4e6b1f", "#b02a6f", "#2b6d9e", "#6b5a1e", "#8a3b3b", "#3f4f6b"];

export function tenantColours(ids: string[]): Map<string, string> {
  return new Map([...ids].sort().map((id, i) => [id, palette[i % palette.length]!]));
}
