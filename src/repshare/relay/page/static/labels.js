// Labels of the map's circles: each beside its circle where there is room, never over another; one without room is left out.

const SIZE = 13; // of the font, in pixels
const HEIGHT = 17; // of a label
const AWAY = 10; // from the circle's middle to the label, across and up
const RADIUS = 14; // of a circle, with its line
const CORNERS = [[1, -1], [-1, -1], [1, 1], [-1, 1], [1, 0], [-1, 0], [0, -1], [0, 1]]; // where a label may be, best first

const pen = document.createElement("canvas").getContext("2d");
let before = new Map(); // each label's corner in the last picture: tried first, so that labels do not jump while playing

export const forgetLabels = () => { before = new Map(); };

// `there`: {x, y, text, label}; `ranges`: of the axes as asked for; `box`: the figure's width and height. Returns plotly's annotations.
export function placeLabels(there, ranges, box, colours) {
  pen.font = `700 ${SIZE}px ${colours.font}`;
  const [x, y] = ranges, scale = Math.min(box.width / (x[1] - x[0]), box.height / (y[1] - y[0]));
  const circles = there.map((one) => ({
    ...one, across: box.width / 2 + (one.x - (x[0] + x[1]) / 2) * scale, down: box.height / 2 - (one.y - (y[0] + y[1]) / 2) * scale,
    width: Math.ceil(pen.measureText(one.text).width) + 2,
  }));
  const taken = [], chosen = new Map(), placed = [];
  for (const circle of circles) {
    const corners = before.has(circle.label) ? [before.get(circle.label), ...CORNERS] : CORNERS;
    const free = corners.filter((corner) => inside(area(circle, corner), box) && !taken.some((other) => overlap(area(circle, corner), other)));
    const corner = free.find((each) => !circles.some((other) => other !== circle && covers(area(circle, each), other))) ?? free[0];
    if (!corner) continue;
    taken.push(area(circle, corner));
    chosen.set(circle.label, corner);
    placed.push(annotation(circle, corner, colours));
  }
  before = chosen;
  return placed;
}

// The rectangle that a label at this corner covers.
function area({ across, down, width }, [right, below]) {
  const side = below === 0 ? RADIUS : AWAY, up = right === 0 ? RADIUS : AWAY;
  const left = right === 0 ? across - width / 2 : right > 0 ? across + side : across - side - width;
  const top = below === 0 ? down - HEIGHT / 2 : below > 0 ? down + up : down - up - HEIGHT;
  return { left, top, right: left + width, bottom: top + HEIGHT };
}

const inside = (one, box) => one.left >= 0 && one.top >= 0 && one.right <= box.width && one.bottom <= box.height;

const overlap = (one, other) => one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom;

function covers(one, { across, down }) {
  const nearX = Math.max(one.left, Math.min(across, one.right)), nearY = Math.max(one.top, Math.min(down, one.bottom));
  return Math.hypot(nearX - across, nearY - down) < RADIUS;
}

function annotation(circle, corner, colours) {
  const { left, right, top, bottom } = area(circle, corner);
  return {
    x: circle.x, y: circle.y, text: circle.shown, showarrow: false, borderpad: 0, font: { color: colours.ink, size: SIZE, weight: 700 },
    xanchor: "center", yanchor: "middle", xshift: (left + right) / 2 - circle.across, yshift: circle.down - (top + bottom) / 2,
  };
}
