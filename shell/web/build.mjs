// Builds the dashboard into dist/: the same sources give the same files.
//   node build.mjs           writes dist/
//   node build.mjs --check   compares dist/ with the sources and writes nothing
import { build } from 'esbuild'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, brotliDecompressSync, constants, gunzipSync, gzipSync } from 'node:zlib'

const here = dirname(fileURLToPath(import.meta.url))
const dist = join(here, 'dist')
const checks = process.argv.includes('--check')

const built = await build({
  absWorkingDir: here,
  entryPoints: { app: 'src/main.tsx' },
  outdir: 'dist',
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['es2022'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  charset: 'utf8',
  metafile: true,
  write: false,
})

const files = new Map(built.outputFiles.map((file) => [file.path.slice(dist.length + 1), Buffer.from(file.contents)]))
for (const name of ['index.html', 'favicon.svg']) files.set(name, readFileSync(join(here, 'src', name)))

// What is in the bundle of others, with the terms under which it is.
const packages = new Set(Object.keys(built.metafile.inputs).flatMap((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)/)?.[1] ?? []))
const terms = [...packages].sort().map((name) => {
  const folder = join(here, 'node_modules', name)
  const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  return `${name} ${version}\n\n${readFileSync(join(folder, 'LICENSE'), 'utf8').trim()}\n`
})
files.set('licenses.txt', Buffer.from(`The dashboard of Sedge contains these packages.\n\n${terms.join('\n----\n\n')}`))

const brotli = { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_LGWIN]: 22 } }

if (checks) {
  const stale = []
  for (const [name, bytes] of files) {
    const kept = (ending, unpack) => {
      try {
        return unpack(readFileSync(join(dist, name + ending)))
      } catch {
        return Buffer.alloc(0)
      }
    }
    const forms = [kept('', (raw) => raw), kept('.gz', gunzipSync), kept('.br', brotliDecompressSync)]
    if (!forms.every((form) => form.equals(bytes))) stale.push(name)
  }
  if (stale.length > 0) {
    console.error(`not what the sources make: ${stale.join(', ')}; run "npm ci && npm run build" in shell/web`)
    process.exit(1)
  }
  console.log(`${files.size} files are what the sources make`)
} else {
  rmSync(dist, { recursive: true, force: true })
  mkdirSync(dist)
  let sum = 0
  for (const [name, bytes] of files) {
    const small = brotliCompressSync(bytes, brotli)
    writeFileSync(join(dist, name), bytes)
    writeFileSync(join(dist, `${name}.gz`), gzipSync(bytes, { level: 9 }))
    writeFileSync(join(dist, `${name}.br`), small)
    sum += small.length
    console.log(`${name}: ${bytes.length} bytes, brotli ${small.length}`)
  }
  console.log(`brotli in all: ${sum}`)
}
