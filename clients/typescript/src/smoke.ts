// A race with the generated client: two drivers tap together, and exactly one wins. Its compilation is half of the test: the
// codes of Accept's answers, and the fields of each, are types.
import assert from 'node:assert/strict'
import createClient from 'openapi-fetch'
import type { components, paths } from './api.js'

const baseUrl = process.env.FIRSTTAP_URL ?? 'http://127.0.0.1:8080'
const adminKey = process.env.FIRSTTAP_ADMIN_KEY ?? ''

const as = (token: string) => createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } })

type Responses = paths['/v1/dispatches/{id}/accept']['post']['responses']
type Problems<R> = R extends { content: { 'application/problem+json': infer P } } ? P : never
type AcceptProblem = Problems<Responses[keyof Responses]>

// explain covers every code: an added or a removed code does not compile.
function explain(p: AcceptProblem): string {
  switch (p.code) {
    case 'ALREADY_TAKEN': return p.final ? 'another driver has it' : 'another driver is about to have it'
    case 'NOT_OPEN_YET': return `opens at ${new Date(p.opens_at).toISOString()}`
    case 'NOT_ELIGIBLE': return p.reasons.map((r: components['schemas']['Reason']) => r).join(', ')
    case 'VALIDATION_FAILED': return p.errors.map((e) => `${e.field} ${e.message}`).join(', ')
    case 'OFFER_STALE':
    case 'DRIVER_BUSY':
    case 'DISPATCH_EXPIRED':
    case 'DISPATCH_CANCELED':
    case 'DISPATCH_NOT_FOUND':
    case 'MALFORMED_REQUEST':
    case 'BODY_TOO_LARGE':
    case 'BODY_TIMEOUT':
    case 'UNSUPPORTED_MEDIA_TYPE':
    case 'UNAUTHENTICATED':
    case 'RATE_LIMITED':
    case 'CLAIM_UNAVAILABLE':
    case 'UNAVAILABLE':
    case 'INTERNAL': return p.detail
    default: return p satisfies never
  }
}

// @ts-expect-error: Accept has no such code
const notOne: AcceptProblem['code'] = 'KEY_NOT_FOUND'
void notOne

const inHours = (h: number) => new Date(Date.now() + h * 3600_000).toISOString()

// must returns the answer's data, or fails with the problem.
function must<T>(answer: { data?: T; error?: { code: string; detail: string } }): T {
  if (answer.data === undefined) assert.fail(`${answer.error?.code}: ${answer.error?.detail}`)
  return answer.data
}

const admin = as(adminKey)
const region = `smoke-${Date.now()}`
const { items } = must(await admin.POST('/v1/admin/drivers/bulk', {
  body: {
    issue_tokens: true,
    drivers: ['+821012345678', '+821087654321'].map((phone) => ({ name: 'Kim', phone, regions: [region], vehicle_class: '45m', on_duty: true })),
  },
}))
const drivers = items.map(({ id, token }) => {
  assert.ok(token)
  return { id, api: as(token) }
})
assert.equal(drivers.length, 2)

const made = await admin.POST('/v1/admin/dispatches', {
  body: {
    region,
    vehicle_class: '45m',
    site_address: '서울시 강남구 테헤란로 1',
    work_starts_at: inHours(24),
    work_ends_at: inHours(26),
    fee: { amount: 350000, currency: 'KRW' },
  },
})
const dispatch = must(made)
assert.equal(dispatch.status, 'PENDING')
assert.equal(made.response.headers.get('location'), `/v1/admin/dispatches/${dispatch.id}`)

for (const { api } of drivers) {
  const offers = must(await api.GET('/v1/me/offers', { params: { query: { limit: 10 } } }))
  assert.deepEqual(offers.items.map((o) => [o.id, o.round]), [[dispatch.id, 1]])
}

const path = { id: dispatch.id }
const taps = await Promise.all(drivers.map(({ api }) => api.POST('/v1/dispatches/{id}/accept', { params: { path }, body: { round: 1 } })))
const won = taps.filter((t) => t.data)
const lost = taps.filter((t) => t.error)
assert.equal(won.length, 1, 'exactly one wins')
assert.equal(lost.length, 1)
assert.equal(won[0]?.data?.result, 'SUCCESS')
const problem = lost[0]?.error
assert.ok(problem)
assert.equal(problem.code, 'ALREADY_TAKEN')
assert.match(explain(problem), /another driver/)

const stored = must(await admin.GET('/v1/admin/dispatches/{id}', { params: { path } }))
assert.equal(stored.accepted_by, drivers[taps.findIndex((t) => t.data)]?.id)
assert.equal(stored.status, 'ACCEPTED')

const refused = await admin.POST('/v1/admin/dispatches/{id}/cancel', { params: { path, header: { 'If-Match': '"999"' } }, body: { reason_code: 'SMOKE' } })
assert.equal(refused.error?.code, 'VERSION_MOVED')
const canceled = must(await admin.POST('/v1/admin/dispatches/{id}/cancel', { params: { path, header: { 'If-Match': `"${stored.version}"` } }, body: {} }))
assert.equal(canceled.status, 'CANCELED')

const nobody = await as('x').GET('/v1/me')
assert.equal(nobody.error?.code, 'UNAUTHENTICATED')
console.log(`the generated client: ${drivers.length} drivers tapped, one won, the other heard "${explain(problem)}"`)
